"""How far rounding can move the rows of an exchange, relative to these rows."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from horovod_sylvie.halo.observed_rows import ObservedRows
from horovod_sylvie.halo.plan import Route

# Rows 0 and 2 leave for rank 1, row 2 also for rank 2
FORWARD = Route(0, torch.tensor([0, 2]), torch.tensor([0, 1, 1]), (0, 2, 1), (0, 0, 0))
ALL = Route(0, None, torch.arange(3), (0, 3, 0), (0, 0, 0))
ROWS = torch.tensor([[3.0, -4.0], [50.0, 50.0], [1.0, 2.0]])


def doubles(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def test_distinct_rows_are_observed_by_hand() -> None:
    seen = ObservedRows.of(ROWS, FORWARD)
    assert torch.equal(seen.ranges, doubles(7, 1))
    assert torch.allclose(seen.squared_norms, doubles(25, 5), rtol=1e-12)
    assert seen.copies.tolist() == [1, 2] and seen.row_features.tolist() == [2, 2]


def test_weights_by_hand() -> None:
    # in all: 2 * 25 + 10 * 5 = 100
    found = ObservedRows.of(ROWS, FORWARD).relative_weights(doubles(2, 10))
    assert torch.allclose(found, doubles(2 * 49 / 100, 10 * 1 / 100), rtol=1e-12)


@pytest.mark.parametrize(
    ("rows", "importance"), [(torch.zeros(3, 2), [1.0, 1.0]), (ROWS, [0.0, 0.0])]
)
def test_rows_that_nobody_needs_weigh_nothing(rows: Tensor, importance: list[float]) -> None:
    found = ObservedRows.of(rows, FORWARD).relative_weights(doubles(*importance))
    assert torch.equal(found, doubles(0, 0))


def test_a_rank_that_sends_nothing_has_no_weights() -> None:
    route = Route(0, torch.arange(0), torch.arange(0), (0, 0, 0), (0, 0, 0))
    assert ObservedRows.of(ROWS, route).relative_weights(doubles()).tolist() == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rows_that_are_not_finite_count_as_zeros(bad: float) -> None:
    rows = ROWS.clone()
    rows[1, 0] = bad
    zeros = ROWS.clone()
    zeros[1] = 0.0
    found, expected = (ObservedRows.of(each, ALL) for each in (rows, zeros))
    assert torch.equal(found.ranges, expected.ranges)
    assert torch.equal(found.squared_norms, expected.squared_norms)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@given(exponent=st.integers(-100, 100), seed=st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_a_factor_changes_no_weight(dtype: torch.dtype, exponent: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(3, 5, generator=generator).to(dtype)
    importance = torch.rand(3, generator=generator, dtype=torch.float64)
    expected = ObservedRows.of(rows, ALL).relative_weights(importance)
    found = ObservedRows.of(rows * 2.0**exponent, ALL).relative_weights(importance)
    assert torch.equal(found, expected)  # a power of two rounds nothing
    assert bool((expected >= 0).all()) and float(expected.sum()) <= 2.0
