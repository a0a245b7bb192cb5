"""The options for bits that adapt, and the rule of degrees."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from horovod_sylvie.halo.bit_policy import BudgetBits, DegreeBits, bits_by_degree

GROUPS = {1: [1, 2, 4, 8], 2: [2, 4, 8], 4: [4, 8], 8: [8]}


@given(degrees=st.lists(st.integers(0, 5), max_size=40), base=st.sampled_from([1, 2, 4, 8]))
@settings(deadline=None)
def test_bits_by_degree_are_equal_groups_in_order_of_degree(degrees: list[int], base: int) -> None:
    bits = bits_by_degree(torch.tensor(degrees, dtype=torch.int64), base)
    assert (bits.dtype, tuple(bits.shape)) == (torch.uint8, (len(degrees),))
    found = bits.tolist()
    sizes = [found.count(width) for width in GROUPS[base]]
    assert sum(sizes) == len(degrees)
    assert max(sizes) - min(sizes) <= 1
    order = sorted(range(len(degrees)), key=degrees.__getitem__)  # stable
    assert [found[row] for row in order] == sorted(found)


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        (1, [8, 1, 4, 1, 2, 2, 8, 4]),
        (2, [8, 2, 4, 2, 2, 4, 8, 4]),
        (4, [8, 4, 8, 4, 4, 4, 8, 8]),
        (8, [8] * 8),
    ],
)
def test_bits_by_degree_by_hand(base: int, expected: list[int]) -> None:
    in_degree = torch.tensor([90.0, 1, 7, 1, 2, 3, 50, 7.5])
    assert bits_by_degree(in_degree, base).tolist() == expected


def test_rows_of_one_degree_are_still_cut_into_groups() -> None:
    assert bits_by_degree(torch.ones(8), 1).tolist() == [1, 1, 2, 2, 4, 4, 8, 8]


@pytest.mark.parametrize(("base", "mean"), [(1, 3.75), (2, 14 / 3), (4, 6.0), (8, 8.0)])
def test_mean_bits_are_those_of_the_paper(base: int, mean: float) -> None:
    assert bits_by_degree(torch.arange(120), base).double().mean().item() == pytest.approx(mean)


@pytest.mark.parametrize(
    "in_degree", [torch.ones(2, 2), torch.tensor([1.0, math.nan]), torch.tensor([math.inf])]
)
def test_degrees_that_are_no_numbers_raise(in_degree: torch.Tensor) -> None:
    text = "bits_by_degree: expected one finite number per row for 'in_degree', got shape"
    with pytest.raises(ValueError, match=text):
        bits_by_degree(in_degree, 1)


def test_plans_are_due_every_so_many_epochs() -> None:
    def due(policy: BudgetBits | DegreeBits) -> list[int]:
        return [epoch for epoch in range(9) if policy.is_due(epoch)]

    assert due(BudgetBits(100, every=4)) == [0, 4, 8]
    assert due(DegreeBits(adapt=True, every=3)) == [0, 3, 6]
    assert due(DegreeBits(adapt=False, every=3)) == [0]


@pytest.mark.parametrize("policy", [BudgetBits(1), DegreeBits()])
def test_options_are_frozen_and_hashable(policy: BudgetBits | DegreeBits) -> None:
    assert hash(policy) == hash(dataclasses.replace(policy))
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.every = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: BudgetBits(0), "BudgetBits: expected an int of at least 1 for 'budget_bytes', go"),
        (lambda: BudgetBits(1e6), "an int of at least 1 for 'budget_bytes', got 1000000.0."),
        (lambda: BudgetBits(True), "an int of at least 1 for 'budget_bytes', got True."),
        (lambda: BudgetBits(9, every=0), "BudgetBits: expected an int of at least 1 for 'every',"),
        (lambda: DegreeBits(3), "DegreeBits: expected one of (1, 2, 4, 8) for 'base', got 3."),
        (lambda: DegreeBits(True), "DegreeBits: expected one of (1, 2, 4, 8) for 'base', got True"),
        (lambda: DegreeBits(adapt=1), "DegreeBits: expected True or False for 'adapt', got 1."),
        (lambda: DegreeBits(every=-1), "DegreeBits: expected an int of at least 1 for 'every',"),
        (lambda: bits_by_degree(torch.ones(1), 16), "bits_by_degree: expected one of (1, 2, 4, 8)"),
    ],
)
def test_option_that_is_not_allowed_raises(make, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        make()
