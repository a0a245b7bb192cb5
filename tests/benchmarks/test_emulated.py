"""Emulated layers hand out gradients as layers do, and take the time that they are told."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import emulated
import pytest
import torch
from emulated import ComputeTimes, EmulatedModel, LayerTime, RandomValues, measure_times
from torch import Tensor, nn

import horovod_sylvie as hvs
from tests.gradient.training import on_ranks

LAYERS = (
    LayerTime(("4.bias", "4.weight"), 0.25),
    LayerTime(("1.weight",), 0.5),
    LayerTime(("0.weight", "0.bias"), 0.125),
)
INSTANT = ComputeTimes(0.0, tuple(dataclasses.replace(each, backward_s=0.0) for each in LAYERS))


def make_model() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last),
        nn.Conv2d(6, 8, 2, bias=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


def make_emulated(times: ComputeTimes = INSTANT, seed: int = 0) -> EmulatedModel:
    return EmulatedModel(make_model(), times, RandomValues(512, seed))


def gradients_of(model: EmulatedModel) -> dict[str, Tensor]:
    model.zero_grad()
    model().backward()
    return {name: each.grad for name, each in model.model.named_parameters()}  # type: ignore[misc]


def test_backward_runs_hooks_layer_after_layer_in_the_measured_order() -> None:
    model = make_emulated()
    seen: list[str] = []
    for name, parameter in model.model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: seen.append(name))
    model().backward()
    assert [sorted(seen[0:2]), seen[2:3], sorted(seen[3:5])] == [
        sorted(layer.names) for layer in LAYERS
    ]


def test_forward_returns_a_scalar_loss() -> None:
    loss = make_emulated()()
    assert loss.shape == () and loss.requires_grad and loss.item() == 0


def test_gradients_have_their_parameters_shape_dtype_and_layout() -> None:
    model = make_emulated()
    gradients = gradients_of(model)
    for name, parameter in model.model.named_parameters():
        assert gradients[name].shape == parameter.shape
        assert gradients[name].dtype == parameter.dtype
        assert gradients[name].stride() == parameter.stride()
    assert not gradients["0.weight"].is_contiguous()


def test_gradients_are_not_constant_and_differ_between_layers_and_steps() -> None:
    model = make_emulated()
    first, second = gradients_of(model), gradients_of(model)
    for name in first:
        assert len(first[name].unique()) == first[name].numel()
        assert not torch.equal(first[name], second[name])
    assert not torch.equal(first["4.bias"], first["0.bias"][:5])


def test_gradients_of_a_step_share_no_memory_with_those_of_the_next() -> None:
    model, twin = make_emulated(), make_emulated()
    kept = gradients_of(model)
    places = {each.data_ptr() for each in kept.values()}
    for each in kept.values():
        each.fill_(7.0)  # as an exchange in place does
    expected = [gradients_of(twin) for _ in range(2)][1]
    second = gradients_of(model)
    assert places.isdisjoint(each.data_ptr() for each in second.values())
    assert all(torch.equal(second[name], expected[name]) for name in expected)
    assert all(bool((each == 7.0).all()) for each in kept.values())


def test_gradients_add_up_over_backward_passes() -> None:
    model, twin = make_emulated(), make_emulated()
    model().backward()
    model().backward()
    parts = [gradients_of(twin) for _ in range(2)]
    for name, parameter in model.model.named_parameters():
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, parts[0][name] + parts[1][name])


def test_ranks_with_other_seeds_have_other_gradients() -> None:
    first, same, other = (gradients_of(make_emulated(seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(first["1.weight"], same["1.weight"])
    assert not torch.equal(first["1.weight"], other["1.weight"])


def test_sleeps_are_what_is_left_of_each_layers_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        now_s[0] += seconds

    copy = RandomValues.gradient_of

    def slow_copy(values: RandomValues, parameter: Tensor) -> Tensor:
        now_s[0] += 0.0625
        return copy(values, parameter)

    monkeypatch.setattr(
        emulated, "time", SimpleNamespace(sleep=sleep, perf_counter=lambda: now_s[0])
    )
    monkeypatch.setattr(RandomValues, "gradient_of", slow_copy)
    make_emulated(ComputeTimes(2.0, LAYERS))().backward()
    # A copy takes 1/16 s; the last layer's two take all of its time
    assert sleeps == [2.0, 0.25 - 0.125, 0.5 - 0.0625]


@pytest.mark.parametrize(
    ("layers", "named"),
    [
        (LAYERS[:2], "0.bias, 0.weight"),
        ((*LAYERS, LayerTime(("5.weight",), 0.0)), "5.weight"),
        ((*LAYERS, LAYERS[1]), "a name twice"),
    ],
)
def test_times_of_other_parameters_are_refused(layers: Any, named: str) -> None:
    with pytest.raises(ValueError, match=f"once in 'times', but these differ: {named}. Measure"):
        make_emulated(ComputeTimes(0.0, layers))


def test_frozen_parameters_need_no_times() -> None:
    model = make_model()
    model[1].requires_grad_(False)
    layers = (INSTANT.layers[0], INSTANT.layers[2])
    EmulatedModel(model, ComputeTimes(0.0, layers), RandomValues(512, 0))().backward()
    assert model[1].weight.grad is None and model[0].weight.grad is not None


def test_measured_times_hold_each_parameter_once_by_layer_from_the_last() -> None:
    model = make_model()
    x = torch.randn(2, 4, 4, 4)
    times = measure_times(model, lambda: model(x).square().mean(), steps=3)
    modules = [layer.names[0].partition(".")[0] for layer in times.layers]
    assert modules == ["4", "1", "0"]
    names = sorted(name for layer in times.layers for name in layer.names)
    assert names == sorted(name for name, _ in model.named_parameters())
    assert times.forward_s > 0 and times.backward_s > 0
    assert ComputeTimes.from_json(times.to_json()) == times
    EmulatedModel(model, times, RandomValues(512, 0))().backward()


def test_backward_time_is_that_of_all_layers() -> None:
    assert ComputeTimes(1.0, LAYERS).backward_s == 0.875


def test_exchange_of_emulated_gradients_returns_the_mean_over_ranks() -> None:
    expected = [gradients_of(make_emulated(seed=rank)) for rank in range(2)]

    def train(comm: hvs.LoopbackCommunicator) -> dict[str, Tensor]:
        model = make_emulated(seed=comm.rank)
        optimizer = hvs.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), comm=comm
        )
        model().backward()
        optimizer.step()
        return {name: each.grad for name, each in model.model.named_parameters()}  # type: ignore[misc]

    for gradients in on_ranks(2, train):
        for name, gradient in gradients.items():
            mean = (expected[0][name] + expected[1][name]) / 2
            assert torch.allclose(gradient, mean, rtol=1e-6, atol=0)
