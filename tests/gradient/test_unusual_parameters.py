"""Parameters of every kind: dtypes, layouts, sizes, frozen, tied and unused ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from tests.gradient.training import (
    COMPRESSIONS,
    OPTIMIZERS,
    assert_all_equal,
    fill,
    loss_of,
    make_model,
    on_ranks,
    residuals_of,
    top_k,
    train,
    vector_of,
    wrap,
)


class Unusual(nn.Module):
    """One parameter of each unusual kind; the gradient is another on every rank."""

    def __init__(self) -> None:
        super().__init__()
        self.scalar = nn.Parameter(torch.tensor(1.0))
        self.empty = nn.Parameter(torch.zeros(0, 3))
        self.one = nn.Parameter(torch.ones(1, 1))
        self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.turned = nn.Parameter(torch.ones(6, 5).t())
        self.wide = nn.Parameter(torch.ones(6, 5, dtype=torch.float64))
        self.narrow = nn.Parameter(torch.ones(6, 5, dtype=torch.bfloat16))
        self.used_on_rank_0 = nn.Parameter(torch.ones(7, 3))
        self.unused = nn.Parameter(torch.ones(7, 3))
        self.tied = self.one
        fill(self)

    def loss(self, step: int, rank: int) -> Tensor:
        generator = torch.Generator().manual_seed(100 * step + rank)
        image = torch.randn(2, 3, 5, 5, generator=generator)
        total = self.conv(image).square().mean() + self.scalar * image.mean() + self.empty.sum()
        for each in (self.one, self.tied, self.turned, self.wide, self.narrow):
            total = total + (each * torch.randn(each.shape, generator=generator)).sum().float()
        if rank == 0:
            total = total + self.used_on_rank_0.sum()
        return total


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("groups", [None, 3])
def test_unusual_parameters_train_alike_on_all_ranks(groups: int | None, compression: str) -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        model = Unusual()
        assert not model.conv.weight.is_contiguous()
        optimizer = wrap(
            model,
            comm,
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
            compression=COMPRESSIONS[compression],
            groups=groups,
        )
        for step in range(4):
            optimizer.zero_grad()
            model.loss(step, comm.rank).backward()
            optimizer.step()
        assert model.conv.weight.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(model.unused, Unusual().unused)
        return vector_of(model)

    assert_all_equal(on_ranks(3, body))


def test_unusual_parameters_get_the_mean_of_all_ranks() -> None:
    size = 2
    expected: dict[str, Tensor] = {}
    for rank in range(size):
        model = Unusual()
        model.loss(0, rank).backward()
        for name, each in model.named_parameters():
            share = torch.zeros_like(each) if each.grad is None else each.grad
            expected[name] = expected.get(name, torch.zeros_like(each).double()) + share / size

    def body(comm: LoopbackCommunicator, compression: Any) -> None:
        model = Unusual()
        optimizer = wrap(model, comm, compression=compression)
        model.loss(0, comm.rank).backward()
        optimizer.synchronize()
        for name, each in model.named_parameters():
            if each.numel():
                assert each.grad is not None
                assert each.grad.dtype == each.dtype
                tolerance = 1e-2 if each.dtype == torch.bfloat16 else 1e-6
                torch.testing.assert_close(
                    each.grad.double(), expected[name].double(), rtol=tolerance, atol=tolerance
                )

    for compression in (hvs.Compression.none, top_k(1.0, value_dtype=torch.float32)):
        on_ranks(size, lambda comm, c=compression: body(comm, c))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_model_in_bfloat16_trains_alike_on_all_ranks(compression: str, optimizer: str) -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        model = make_model(dtype=torch.bfloat16)
        train(
            model,
            wrap(model, comm, optimizer, compression=COMPRESSIONS[compression]),
            comm,
            range(3),
        )
        vector = vector_of(model)
        assert vector.dtype == torch.bfloat16
        assert bool(vector.isfinite().all())
        return vector

    assert_all_equal(on_ranks(2, body))


def trained_with_unfreezing(
    comm: LoopbackCommunicator, compression: Any, groups: int | None, num_frozen: int = 3
) -> Tensor:
    """Train with the first parameters frozen for two steps."""
    model = make_model()
    first = [*model.parameters()][:num_frozen]
    for each in first:
        each.requires_grad_(False)
    optimizer = wrap(
        model,
        comm,
        lambda p: torch.optim.SGD(p, lr=0.1),
        compression=compression,
        groups=groups,
    )
    for step in range(6):
        if step == 2:
            assert all(each.grad is None for each in first)
            for each in first:
                each.requires_grad_(True)
        optimizer.zero_grad()
        loss_of(model, step, comm.rank).backward()
        optimizer.step()
    return vector_of(model)


@pytest.mark.parametrize("num_frozen", [1, 3, 4])
@pytest.mark.parametrize("groups", [None, 1, 2, 3])
def test_parameters_that_thaw_are_exchanged_from_their_first_gradient(
    groups: int | None, num_frozen: int
) -> None:
    def run(compression: Any, size: int) -> list[Tensor]:
        return on_ranks(
            size,
            lambda comm: trained_with_unfreezing(comm, compression, groups, num_frozen),
        )

    expected = run(hvs.Compression.none, 2)
    assert_all_equal(expected)
    whole = run(top_k(1.0, value_dtype=torch.float32), 2)
    assert_all_equal(whole)
    torch.testing.assert_close(whole[0], expected[0], rtol=1e-5, atol=1e-6)
    for compression in (hvs.Compression.fp16, hvs.Compression.bf16):
        lossy = run(compression, 2)
        assert_all_equal(lossy)
        torch.testing.assert_close(lossy[0], expected[0], rtol=0.05, atol=0.02)


def test_residual_counts_no_gradient_twice_when_a_parameter_thaws() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        model[0].weight.requires_grad_(False)
        optimizer = wrap(model, comm, compression=top_k(0.01, value_dtype=torch.float32), groups=1)
        for step in range(3):
            if step == 2:
                model[0].weight.requires_grad_(True)
            before = residuals_of(optimizer).get("3.weight", torch.zeros(320))
            optimizer.zero_grad()
            loss = loss_of(model, step, comm.rank)
            (own,) = torch.autograd.grad(loss, [model[3].weight], retain_graph=True)
            loss.backward()
            optimizer.step()
            after = residuals_of(optimizer)["3.weight"]
            # All but the 4 elements that were sent
            assert int((after != before + own.flatten()).sum()) == 4

    on_ranks(2, body)


def test_frozen_parameters_of_any_dtype_are_left_alone() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        count = nn.Parameter(torch.ones(3).int(), requires_grad=False)
        model[1].register_parameter("count", count)
        train(model, wrap(model, comm), comm, range(2))
        assert torch.equal(count, torch.ones(3).int())

    on_ranks(2, body)


def test_parameter_of_a_dtype_that_no_rank_can_send_raises() -> None:
    weight = nn.Parameter(torch.ones(3, dtype=torch.complex64))

    def body(comm: LoopbackCommunicator) -> None:
        hvs.DistributedOptimizer(torch.optim.SGD([weight], 0.1), [("weight", weight)], comm=comm)

    text = r"expected float16, .*, got torch.complex64 for 'weight'. Exclude it from the optimizer"
    with pytest.raises(TypeError, match=text):
        on_ranks(2, body)
