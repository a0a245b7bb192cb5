"""Density, its warm-up, and the number of elements that follows."""

from __future__ import annotations

import math

import pytest

import horovod_sylvie as hvs
from horovod_sylvie.gradient.density import DGC_LADDER
from horovod_sylvie.planning.plan import num_selected


@pytest.mark.parametrize(
    ("num_elements", "density", "expected"),
    [
        (1, 1e-9, 1),
        (100, 0.01, 1),
        (101, 0.01, 2),
        (10, 1.0, 10),
        (7, 0.5, 4),
        (1 << 20, 1e-3, 1049),
    ],
)
def test_number_selected_is_rounded_up_and_in_range(
    num_elements: int, density: float, expected: int
) -> None:
    assert num_selected(num_elements, density) == expected


def test_warmup_passes_its_stages_in_equal_parts() -> None:
    warmup = hvs.Warmup(steps=8)
    densities = [warmup.density_at(step, 0.001) for step in range(10)]
    assert densities == [each for each in DGC_LADDER for _ in range(2)] + [0.001, 0.001]


def test_warmup_never_goes_below_its_target() -> None:
    warmup = hvs.Warmup(steps=4)
    assert [warmup.density_at(step, 0.05) for step in range(6)] == [0.25, 0.0625] + 4 * [0.05]


def test_warmup_with_fewer_steps_than_stages_skips_stages() -> None:
    warmup = hvs.Warmup(steps=2, densities=(0.5, 0.25, 0.125, 0.0625))
    assert [warmup.density_at(step, 0.01) for step in range(3)] == [0.5, 0.125, 0.01]


def test_policy_without_warmup_has_one_density() -> None:
    policy = hvs.Compression.topk(0.02)
    assert {policy.density_at(step) for step in (0, 1, 10**9)} == {0.02}
    warm = hvs.Compression.topk(0.02, warmup=hvs.Warmup(steps=2, densities=(0.5,)))
    assert [warm.density_at(step) for step in range(4)] == [0.5, 0.5, 0.02, 0.02]


@pytest.mark.parametrize("density", [0, 0.0, -0.1, 1.1, math.nan, True, "0.1", None])
def test_density_out_of_range_raises(density: object) -> None:
    text = r"Compression.topk: expected a number in \(0, 1\] for 'density', got .*0.01 sends one"
    with pytest.raises(ValueError, match=text):
        hvs.Compression.topk(density)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Warmup: expected a number in \(0, 1\] for 'densities'"):
        hvs.Warmup(steps=3, densities=(0.5, density))  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, "3"])
def test_steps_of_warmup_out_of_range_raise(steps: object) -> None:
    with pytest.raises(ValueError, match="Warmup: expected an int of at least 1 for 'steps', got"):
        hvs.Warmup(steps=steps)  # type: ignore[arg-type]


def test_warmup_without_densities_raises() -> None:
    with pytest.raises(ValueError, match="expected at least one density for 'densities', got none"):
        hvs.Warmup(steps=3, densities=())
