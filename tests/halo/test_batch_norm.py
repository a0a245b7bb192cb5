"""Rows over P ranks are normalised as BatchNorm1d normalises their concatenation."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from horovod_sylvie.halo.batch_norm import SynchronizedBatchNorm

F = 5
# Rows of each rank: one rank, equal, unequal, and ranks with one row or none.
COUNTS = [[7], [4, 4], [6, 1], [3, 0, 5], [0, 2], [1, 9, 0, 2], [1, 1]]
OPTIONS = {
    "default": {},
    "cumulative": {"momentum": None},
    "momentum": {"momentum": 0.7, "eps": 0.1},
    "not affine": {"affine": False},
    "no running statistics": {"track_running_stats": False},
}


def make_rows(num_rows: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    scale = torch.logspace(-2, 2, F, dtype=torch.float64)
    return torch.randn(num_rows, F, dtype=torch.float64, generator=generator) * scale + 3


def make_layer(options: dict) -> nn.BatchNorm1d:
    layer = nn.BatchNorm1d(F, dtype=torch.float64, **options)
    if layer.affine:
        nn.init.uniform_(layer.weight, 0.5, 2)
        nn.init.uniform_(layer.bias)
    return layer


def assert_close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_ranks_equal_batch_norm_of_all_rows(counts: list[int], name: str) -> None:
    whole = make_layer(OPTIONS[name])
    layers = [copy.deepcopy(whole) for _ in counts]
    steps = [make_rows(sum(counts), seed).requires_grad_() for seed in range(3)]
    weights = make_rows(sum(counts), 9)
    expected = []
    for x in steps:
        y = whole(x)
        (y.sin() * weights).sum().backward()
        expected.append(y.detach())
    whole.eval()
    evaluated = whole(steps[0]).detach()

    def body(comm: LoopbackCommunicator) -> None:
        layer = SynchronizedBatchNorm.convert(layers[comm.rank], comm, "norm")
        own = slice(sum(counts[: comm.rank]), sum(counts[: comm.rank + 1]))
        for x, y in zip(steps, expected, strict=True):
            rows = x.detach()[own].requires_grad_()
            out = layer(rows)
            assert_close(out, y[own])
            (out.sin() * weights[own]).sum().backward()
            assert_close(rows.grad, x.grad[own])
        for key, parameter in layer.named_parameters():  # shares, which the optimizer sums
            total = comm.allreduce(parameter.grad, name=f"grad.{key}").wait()
            assert_close(total, getattr(whole, key).grad)
        for key, buffer in whole.named_buffers():
            torch.testing.assert_close(getattr(layer, key), buffer, rtol=1e-10, atol=1e-10)
        layer.eval()
        assert_close(layer(steps[0].detach()[own]), evaluated[own])

    run_loopback(len(counts), body)


def test_far_from_zero_the_variance_is_not_lost() -> None:
    rows = torch.randn(40, F) * 1e-2 + 1000
    whole = nn.BatchNorm1d(F, eps=1e-12, dtype=torch.float64)
    expected = whole(rows.double()).float()

    def body(comm: LoopbackCommunicator) -> None:
        layer = SynchronizedBatchNorm.convert(nn.BatchNorm1d(F, eps=1e-12), comm, "norm")
        own = rows.split([7, 33])[comm.rank]
        # the mean is rounded to float32, 3e-5 next to a deviation of 1e-2
        torch.testing.assert_close(
            layer(own), expected.split([7, 33])[comm.rank], rtol=1e-2, atol=1e-2
        )

    run_loopback(2, body)


@pytest.mark.parametrize("counts", [[1], [0], [1, 0], [0, 1, 0], [0, 0]], ids=str)
def test_fewer_than_two_rows_in_all_raise_on_every_rank(counts: list[int]) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        layer = SynchronizedBatchNorm.convert(nn.BatchNorm1d(F), comm, "norm")
        text = f"at least two rows over all ranks in training, got {sum(counts)}"
        with pytest.raises(ValueError, match=text):
            layer(torch.ones(counts[comm.rank], F))
        assert int(layer.num_batches_tracked) == 0
        layer.eval()
        assert layer(torch.ones(counts[comm.rank], F)).shape == (counts[comm.rank], F)

    run_loopback(len(counts), body)


@pytest.mark.parametrize("shape", [(3, F + 1), (F,), (3, F, 2)], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_rows_of_another_shape_raise(shape: tuple[int, ...], training: bool) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        layer = SynchronizedBatchNorm.convert(nn.BatchNorm1d(F), comm, "norm").train(training)
        with pytest.raises(ValueError, match=r"expected rows \[I, 5\] for 'input', got \("):
            layer(torch.ones(shape))

    run_loopback(1, body)


@pytest.mark.parametrize("name", OPTIONS)
def test_conversion_shares_parameters_and_buffers(name: str) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        old = make_layer(OPTIONS[name]).eval()
        new = SynchronizedBatchNorm.convert(old, comm, "norm")
        assert not new.training
        assert list(new.state_dict()) == list(old.state_dict())
        for key, value in [*old.named_parameters(), *old.named_buffers()]:
            assert getattr(new, key) is value
        for key in ("num_features", "eps", "momentum", "affine", "track_running_stats"):
            assert getattr(new, key) == getattr(old, key)

    run_loopback(1, body)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("training", [True, False])
def test_half_precision_rows_keep_their_dtype(training: bool, dtype: torch.dtype) -> None:
    rows = torch.randn(8, F).to(dtype)
    whole = nn.BatchNorm1d(F).train(training)
    expected = copy.deepcopy(whole)(rows)

    def body(comm: LoopbackCommunicator) -> None:
        layer = SynchronizedBatchNorm.convert(copy.deepcopy(whole), comm, "norm")
        out = layer(rows.split(4)[comm.rank])
        assert out.dtype == expected.dtype == dtype
        torch.testing.assert_close(out, expected.split(4)[comm.rank], rtol=0.02, atol=0.02)

    run_loopback(2, body)


def test_deep_copy_is_of_the_same_ranks_with_parameters_of_its_own() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        layer = SynchronizedBatchNorm.convert(nn.BatchNorm1d(F), comm, "norm")
        twin = copy.deepcopy(layer)
        assert isinstance(twin, SynchronizedBatchNorm)
        assert (twin.comm, twin.layer) == (comm, "norm")
        twin(torch.randn(4, F))
        assert int(layer.num_batches_tracked) == 0
        assert int(twin.num_batches_tracked) == 1
        assert twin.weight is not layer.weight

    run_loopback(2, body)
