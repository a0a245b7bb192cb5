"""Compressors with Horovod's interface: Horovod's two, and a user's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from tests.gradient.training import (
    assert_all_equal,
    loss_of,
    make_model,
    on_ranks,
    top_k,
    trained,
    wrap,
)


class Doubling:
    """A user's compressor, used as a class: sends the double, and halves the sum."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, str]:
        return 2 * tensor, "context"

    @staticmethod
    def decompress(tensor: Tensor, ctx: str) -> Tensor:
        assert ctx == "context"
        return tensor / 2


class ErrorFeedback:
    """A user's compressor with state: rounds to eighths and keeps what is left, by shape."""

    def __init__(self) -> None:
        self.left: dict[Any, Tensor] = {}
        self.calls: list[str] = []

    def compress(self, tensor: Tensor) -> tuple[Tensor, Any]:
        self.calls.append("compress")
        total = tensor + self.left.get(tensor.shape, 0)
        sent = (8 * total).round() / 8
        self.left[tensor.shape] = total - sent
        return sent, tensor.shape

    def decompress(self, tensor: Tensor, ctx: Any) -> Tensor:
        self.calls.append("decompress")
        assert tensor.shape == ctx
        return tensor


class Halves:
    """A user's compressor of another shape: sends the first half, and zeros come back."""

    def compress(self, tensor: Tensor) -> tuple[Tensor, tuple[torch.Size, torch.dtype]]:
        flat = tensor.reshape(-1)
        return flat[: len(flat) // 2 + 1].double(), (tensor.shape, tensor.dtype)

    def decompress(self, tensor: Tensor, ctx: tuple[torch.Size, torch.dtype]) -> Tensor:
        shape, dtype = ctx
        whole = torch.zeros(shape, dtype=dtype)
        whole.view(-1)[: len(tensor)] = tensor.to(dtype)
        return whole


class Flat:
    """A user's compressor that gives back a vector, in two dimensions on the way."""

    def compress(self, tensor: Tensor) -> tuple[Tensor, None]:
        return tensor.reshape(1, -1), None

    def decompress(self, tensor: Tensor, ctx: None) -> Tensor:
        assert tensor.dim() == 2
        return tensor[0]


def reduced(comm: LoopbackCommunicator, **options: Any) -> dict[str, Tensor]:
    """Return the gradients of one step after the exchange, by name."""
    model = make_model()
    optimizer = wrap(model, comm, **options)
    loss_of(model, 0, comm.rank).backward()
    optimizer.synchronize()
    return {name: each.grad.clone() for name, each in model.named_parameters()}


@pytest.mark.parametrize("compression", [Doubling, Doubling(), Flat()])
def test_lossless_compressor_of_a_user_changes_nothing(compression: object) -> None:
    got = on_ranks(2, lambda comm: trained(comm, compression=compression))
    assert_all_equal([*got, *on_ranks(2, trained)])


def test_compressor_with_state_is_called_once_a_step_and_parameter() -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        compressor = ErrorFeedback()
        vector = trained(comm, compression=compressor, steps=range(30))
        num_parameters = len([*make_model().parameters()])
        assert compressor.calls.count("compress") == 30 * num_parameters
        assert compressor.calls.count("decompress") == 30 * num_parameters
        return vector

    assert_all_equal(on_ranks(2, body))


def test_compressor_of_another_shape_is_decompressed() -> None:
    whole, half = (
        on_ranks(3, lambda comm, c=c: reduced(comm, compression=c))[0]
        for c in (hvs.Compression.none, Halves())
    )
    for name, gradient in half.items():
        count = gradient.numel() // 2 + 1
        torch.testing.assert_close(gradient.view(-1)[:count], whole[name].view(-1)[:count])
        assert not gradient.view(-1)[count:].any()


def test_half_precision_sums_in_half_precision() -> None:
    got = on_ranks(2, lambda comm: reduced(comm, op="Sum", compression=hvs.Compression.fp16))[0]
    halves = []
    for rank in range(2):
        model = make_model()
        loss_of(model, 0, rank).backward()
        halves.append([each.grad.half() for each in model.parameters()])
    for gradient, first, second in zip(got.values(), *halves, strict=True):
        assert torch.equal(gradient, (first + second).float())


@pytest.mark.parametrize("factor", [0.5, 2.0, 4.0])
@pytest.mark.parametrize("compression", [hvs.Compression.none, Doubling, top_k(1.0)])
def test_predivision_by_a_power_of_two_changes_nothing(compression: object, factor: float) -> None:
    divided, plain = (
        on_ranks(
            2,
            lambda comm, f=f: reduced(comm, compression=compression, gradient_predivide_factor=f),
        )[0]
        for f in (factor, 1.0)
    )
    for name, gradient in plain.items():
        assert torch.equal(divided[name], gradient)


def test_predivision_keeps_half_precision_in_range() -> None:
    def body(comm: LoopbackCommunicator, factor: float) -> Tensor:
        weight = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
        optimizer = hvs.DistributedOptimizer(
            torch.optim.SGD([weight], 1.0), comm=comm, gradient_predivide_factor=factor
        )
        (weight * 40000.0).sum().backward()
        optimizer.synchronize()
        assert weight.grad is not None
        return weight.grad

    assert bool(on_ranks(2, lambda comm: body(comm, 1.0))[0].isinf().all())
    assert on_ranks(2, lambda comm: body(comm, 2.0))[0].tolist() == [40000.0, 40000.0]


@pytest.mark.parametrize("compression", [hvs.Compression.none, hvs.Compression.bf16, top_k()])
def test_groups_change_no_gradient(compression: object) -> None:
    def body(comm: LoopbackCommunicator, groups: Any) -> dict[str, Tensor]:
        model = make_model()
        if groups == "lists":
            groups = [[model[5].weight, model[0].bias], [*model[2].parameters()]]
        optimizer = wrap(model, comm, compression=compression, groups=groups)
        for step in range(2):
            optimizer.zero_grad()
            loss_of(model, step, comm.rank).backward()
            optimizer.synchronize()
        return {name: each.grad.clone() for name, each in model.named_parameters()}

    expected = on_ranks(2, lambda comm: body(comm, None))[0]
    for groups in (1, 2, 4, 100, "lists", []):
        got = on_ranks(2, lambda comm, g=groups: body(comm, g))
        for name, gradient in expected.items():
            assert torch.equal(got[0][name], gradient)
            assert torch.equal(got[1][name], gradient)
