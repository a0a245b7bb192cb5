"""One small training, as a user writes it, for every program about optimizers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from horovod_sylvie.gradient.compression import TopK

WIDTH, CLASSES = 24, 6
# Small parameters travel sparse too, so that little models show what large ones do
EVERY_LAYER = 1

Wrap = Callable[[torch.optim.Optimizer, nn.Module], Any]
MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]


def make_model(*, bias: bool = True) -> nn.Module:
    """Make the same model on every rank; without `bias` it has no parameter of one dimension."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return nn.Sequential(
            nn.Linear(WIDTH, 40, bias=bias),
            nn.Tanh(),
            nn.LayerNorm(40) if bias else nn.Identity(),
            nn.Linear(40, CLASSES, bias=bias),
        )


def make_batch(step: int, rank: int) -> tuple[Tensor, Tensor]:
    """Make a batch that belongs to one rank and one step."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(16, WIDTH, generator=generator)
    return x, x[:, :CLASSES].argmax(1)


def loss_of(model: nn.Module, step: int, rank: int) -> Tensor:
    """Return the loss of one batch."""
    x, y = make_batch(step, rank)
    return nn.functional.cross_entropy(model(x), y)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """Make the optimizer of most checks."""
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


def train(
    model: nn.Module,
    wrap: Wrap,
    rank: int,
    *,
    make_optimizer: MakeOptimizer = sgd,
    num_steps: int = 6,
    passes: int = 1,
) -> Tensor:
    """Train a copy of a model; return its parameters as one vector."""
    model = copy.deepcopy(model)
    optimizer = wrap(make_optimizer(model), model)
    for step in range(num_steps):
        optimizer.zero_grad()
        for number in range(passes):
            loss_of(model, step * passes + number, rank).backward()
        optimizer.step()
    return parameters_of(model)


def parameters_of(model: nn.Module) -> Tensor:
    """Return all parameters as one vector."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def top_k(density: float = 0.1, **options: Any) -> TopK:
    """Return a policy that sparsifies every parameter of two dimensions."""
    return TopK(density=density, min_elements=EVERY_LAYER, **options)
