"""Axes: ticks are round, hold the figures between them, and survive any figure."""

from __future__ import annotations

import math

import pytest

from horovod_sylvie.run_report.scale import (
    is_shown,
    linear_scale,
    log_scale,
    nice_step,
    suits_log,
)

ODD = [
    [],
    [math.nan],
    [math.inf, -math.inf, None],
    [0.0],
    [5.0],
    [-5.0],
    [1e-320],
    [1e299, -1e299],
    [1e308],
    [1.0, 1.0 + 1e-12],
    [2.31, 0.07, math.nan],
    [-0.3, 0.4],
    [1e-9, 3e-9],
]


@pytest.mark.parametrize(
    ("span", "about", "step"), [(10, 5, 2), (1, 5, 0.2), (7, 5, 2), (0.34, 5, 0.1), (100, 5, 20)]
)
def test_step_is_1_2_or_5_times_a_power_of_ten(span: float, about: int, step: float) -> None:
    assert nice_step(span, about) == pytest.approx(step)


@pytest.mark.parametrize("values", ODD)
@pytest.mark.parametrize("from_zero", [False, True])
def test_linear_scale_holds_its_figures(values: list[float], from_zero: bool) -> None:
    scale = linear_scale(values, from_zero=from_zero).between(300, 20)
    assert scale.low < scale.high
    assert 2 <= len(scale.ticks) <= 8
    assert len({label for _, label in scale.ticks}) == len(scale.ticks)
    for value in values:
        if is_shown(value):
            slack = 1e-9 * abs(value)
            assert scale.low - slack <= value <= scale.high + slack
            assert 20 <= scale.place(value) <= 300
    assert not from_zero or scale.low <= 0 <= scale.high
    assert scale.place(scale.low) == 300 and scale.place(scale.high) == 20
    for value, _ in scale.ticks:
        assert 20 - 1e-6 <= scale.place(value) <= 300 + 1e-6


def test_figures_beyond_the_ends_are_at_the_ends() -> None:
    scale = linear_scale([0, 10]).between(0, 100)
    assert (scale.place(-5), scale.place(5), scale.place(50)) == (0, 50, 100)


@pytest.mark.parametrize(
    ("epochs", "labels"),
    [
        ([1], ["1"]),
        ([1, 2, 3], ["1", "2", "3"]),
        ([1, 60], ["10", "20", "30", "40", "50", "60"]),
        ([41, 43], ["41", "42", "43"]),
    ],
)
def test_epochs_are_whole_and_end_where_they_end(epochs: list[int], labels: list[str]) -> None:
    scale = linear_scale([float(epoch) for epoch in epochs], whole=True, about=8)
    assert [label for _, label in scale.ticks] == labels
    if len(epochs) > 1:
        assert (scale.low, scale.high) == (epochs[0], epochs[-1])


def test_ratios_tell_more_only_where_figures_are_positive_and_far_apart() -> None:
    assert suits_log([1e-3, 2.3])
    assert not suits_log([0.1, 2.3])
    assert not suits_log([0.0, 2.3])
    assert not suits_log([-1.0, 1000.0])
    assert not suits_log([])
    assert not suits_log([math.nan])
    assert suits_log([math.nan, None, 1.0, 1e10])


@pytest.mark.parametrize(
    "values", [[0.07, 0.9], [3e-5, 2.3], [1e-9, 1e9], [1.0], [100.0, 200.0], [], [1e-200, 1e200]]
)
def test_logarithmic_scale_holds_its_figures(values: list[float]) -> None:
    scale = log_scale(values).between(0, 100)
    assert scale.is_log
    assert 2 <= len(scale.ticks) <= 10
    assert all(scale.low <= value * 1.001 and value * 0.999 <= scale.high for value in values)
    places = [scale.place(value) for value, _ in scale.ticks]
    assert places == sorted(places)
    assert places[0] == 0 and places[-1] == pytest.approx(100)


def test_equal_ratios_are_equally_long() -> None:
    scale = log_scale([1, 1000]).between(0, 300)
    assert scale.place(10) == pytest.approx(100)
    assert scale.place(100) == pytest.approx(200)
