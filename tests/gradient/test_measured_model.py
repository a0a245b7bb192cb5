"""Measuring a model: the order of backward, and times that add up."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from horovod_sylvie.gradient.backward_profile import BackwardProfile
from horovod_sylvie.gradient.measured_model import measure_layers
from horovod_sylvie.gradient.speed_of_rank import measure_speed


class Slow(torch.autograd.Function):
    """The identity, whose backward takes 5 ms."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        time.sleep(0.005)
        return grad


class Stack(nn.Module):
    """Two layers with a slow step between them, defined in the order opposite to their use."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(200, 300)
        self.first = nn.Linear(10, 200)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(Slow.apply(self.first(x)))


def test_layers_come_in_the_order_of_backward_with_their_times() -> None:
    model, x = Stack(), torch.randn(4, 10)
    layers, forward_s = measure_layers(model, lambda: model(x).sum(), steps=3)
    names = [layer.name for layer in layers]
    assert {*names[:2]} == {"last.weight", "last.bias"}
    assert {*names[2:4]} == {"first.weight", "first.bias"}
    assert {*names[4:]} == {"unused.weight", "unused.bias"}
    assert layers[2].backward_s >= 0.005
    assert all(layer.backward_s == 0.0 for layer in layers[4:])
    assert forward_s > 0.0
    assert [layer.name for layer in layers if layer.can_be_sparse] == ["last.weight"]
    assert all(parameter.grad is None for parameter in model.parameters())


def test_profile_takes_medians_of_the_newest_steps() -> None:
    profile = BackwardProfile()
    assert profile.intervals() == {}
    for step, gap in enumerate([1.0, 100.0, 2.0]):
        profile.keep({"a": 10.0 * step + gap, "b": 10.0 * step})
    assert list(profile.intervals().items()) == [("b", 0.0), ("a", 2.0)]
    for _ in range(11):
        profile.keep({"a": 0.0, "b": 7.0})
    assert list(profile.intervals().items()) == [("a", 0.0), ("b", 7.0)]


def test_speed_of_this_rank_is_positive_and_plausible() -> None:
    speed = measure_speed(forward_s=0.5)
    assert speed.forward_s == 0.5
    assert 0.0 < speed.select_s_per_element < 1e-6
    assert 0.0 <= speed.select_s_per_selected < 1e-5
    assert 0.0 <= speed.decode_s_per_element < 1e-6
    assert 0.0 < speed.copy_s_per_element < 1e-6
