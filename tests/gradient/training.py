"""A small model, its data and its training on every rank, for the tests of gradient exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from horovod_sylvie.gradient.feedback import Feedback
from horovod_sylvie.gradient.gradient_exchange import GradientExchange
from horovod_sylvie.gradient.top_k_exchange import TopKExchange

Result = TypeVar("Result")
MakeOptimizer = Callable[[Any], torch.optim.Optimizer]

NUM_FEATURES, NUM_CLASSES = 12, 5

OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "adam": lambda params: torch.optim.Adam(params, lr=0.01),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=0.01),
}


def top_k(density: float = 0.1, **options: Any) -> Any:
    """Return a top-k policy under which every matrix is sparsified, however small."""
    return hvs.Compression.topk(density, **({"min_elements": 0} | options))


COMPRESSIONS: dict[str, Any] = {
    "none": hvs.Compression.none,
    "fp16": hvs.Compression.fp16,
    "bf16": hvs.Compression.bf16,
    "topk": top_k(),
    "topk-fp32": top_k(value_dtype=torch.float32),
}


def on_ranks(
    size: int, body: Callable[[LoopbackCommunicator], Result], *, timeout_s: float = 20.0
) -> list[Result]:
    """Run a function once per rank, in threads."""
    return run_loopback(size, body, timeout_s=timeout_s)


def make_model(*, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """Make the same model on every rank; the global generator is not asked, threads share it."""
    model = nn.Sequential(
        nn.Linear(NUM_FEATURES, 16),
        nn.Tanh(),
        nn.LayerNorm(16),
        nn.Linear(16, 20),
        nn.Tanh(),
        nn.Linear(20, NUM_CLASSES, bias=False),
    )
    fill(model)
    return model.to(dtype)


def fill(module: nn.Module, *, seed: int = 1) -> None:
    """Give a module weights that depend on nothing but their shapes and the seed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))


def make_batch(step: int, rank: int, *, num_rows: int = 8) -> tuple[Tensor, Tensor]:
    """Return inputs and classes: another batch for every step and rank."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(num_rows, NUM_FEATURES, generator=generator)
    return inputs, torch.randint(NUM_CLASSES, (num_rows,), generator=generator)


def loss_of(model: nn.Module, step: int, rank: int) -> Tensor:
    """Return the loss of one rank's batch, in float32."""
    inputs, classes = make_batch(step, rank)
    dtype = next(model.parameters()).dtype
    return nn.functional.cross_entropy(model(inputs.to(dtype)).float(), classes)


def wrap(
    model: nn.Module, comm: LoopbackCommunicator, make: MakeOptimizer | str = "sgd", **options: Any
) -> Any:
    """Make an optimizer of a model, and wrap it."""
    make = OPTIMIZERS[make] if isinstance(make, str) else make
    return hvs.DistributedOptimizer(
        make(model.parameters()),
        named_parameters=model.named_parameters(),
        comm=comm,
        **options,
    )


def train(
    model: nn.Module, optimizer: Any, comm: LoopbackCommunicator, steps: Sequence[int] = range(5)
) -> None:
    """Take steps as a user's program does."""
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, step, comm.rank).backward()
        optimizer.step()


def trained(
    comm: LoopbackCommunicator,
    make: MakeOptimizer | str = "sgd",
    *,
    steps: Sequence[int] = range(5),
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> Tensor:
    """Train the model with a wrapped optimizer, and return its parameters as one vector."""
    model = make_model(dtype=dtype)
    train(model, wrap(model, comm, make, **options), comm, steps)
    return vector_of(model)


def trained_plainly(
    make: MakeOptimizer | str, *, num_ranks: int = 1, steps: Sequence[int] = range(5)
) -> Tensor:
    """Train the model in one process on the mean loss of all ranks' batches."""
    model = make_model()
    make = OPTIMIZERS[make] if isinstance(make, str) else make
    optimizer = make(model.parameters())
    for step in steps:
        optimizer.zero_grad()
        for rank in range(num_ranks):
            (loss_of(model, step, rank) / num_ranks).backward()
        optimizer.step()
    return vector_of(model)


def vector_of(model: nn.Module) -> Tensor:
    """Return a copy of all parameters, in a row."""
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def exchange_of(optimizer: Any) -> GradientExchange:
    """Return the exchange behind a wrapped optimizer."""
    exchange = optimizer._hvs_control.exchange
    assert isinstance(exchange, GradientExchange)
    return exchange


def feedback_of(optimizer: Any) -> dict[str, Feedback]:
    """Return what a rank keeps, by parameter name."""
    return exchange_of(optimizer).factory.feedback


def residuals_of(optimizer: Any) -> dict[str, Tensor]:
    """Return copies of a rank's residuals, by parameter name."""
    return {name: each.residual.clone() for name, each in feedback_of(optimizer).items()}


def velocities_of(optimizer: Any) -> dict[str, Tensor]:
    """Return copies of the velocities in front of the selection, by parameter name."""
    return {
        name: each.velocity.clone()
        for name, each in feedback_of(optimizer).items()
        if each.velocity is not None
    }


def top_k_exchanges(optimizer: Any) -> Iterator[TopKExchange]:
    """Yield the sparse exchanges of an optimizer."""
    for exchange in exchange_of(optimizer).exchanges:
        if isinstance(exchange, TopKExchange):
            yield exchange


def assert_all_equal(vectors: Sequence[Tensor]) -> None:
    """Check that all ranks hold the same bits."""
    for vector in vectors[1:]:
        assert torch.equal(vector, vectors[0])
