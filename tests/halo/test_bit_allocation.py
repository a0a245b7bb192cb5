"""Bits under a budget, against all choices that there are."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from horovod_sylvie.halo.bit_allocation import BIT_WIDTHS, allocate_bits
from horovod_sylvie.ops.pack_rows import packed_row_bytes


def allocate(
    weight: list[float], features: list[int], copies: list[int], budget_bytes: int
) -> list[int]:
    bits = allocate_bits(
        torch.tensor(weight, dtype=torch.float64),
        torch.tensor(features, dtype=torch.int64),
        torch.tensor(copies, dtype=torch.int64),
        budget_bytes=budget_bytes,
    )
    assert (bits.dtype, tuple(bits.shape)) == (torch.uint8, (len(weight),))
    return bits.tolist()


def bytes_of(features: list[int], copies: list[int], bits: list[int]) -> int:
    return sum(
        count * packed_row_bytes(width, each)
        for width, count, each in zip(features, copies, bits, strict=True)
    )


def error_of(weight: list[float], features: list[int], bits: list[int]) -> float:
    return math.fsum(
        width * importance / (2**each - 1) ** 2
        for importance, width, each in zip(weight, features, bits, strict=True)
    )


def next_step(
    weight: list[float], features: list[int], copies: list[int], bits: list[int]
) -> tuple[float, int]:
    """Return gain per byte and bytes of the best step not taken; of equals, the largest's bytes."""
    steps = []
    for row, each in enumerate(bits):
        if each < 8 and weight[row] > 0:
            cost = bytes_of([features[row]], [copies[row]], [2 * each])
            cost -= bytes_of([features[row]], [copies[row]], [each])
            gain = weight[row] * features[row]
            gain *= 1 / (2**each - 1) ** 2 - 1 / (2 ** (2 * each) - 1) ** 2
            steps.append((gain / cost, cost))  # a free step is never left
    best = max((rate for rate, _ in steps), default=0.0)
    return best, max((cost for rate, cost in steps if rate >= best * (1 - 1e-9)), default=0)


@st.composite
def problems(draw: st.DrawFn, most: int = 4):
    """Draw weights, features and copies of a few rows, and a budget that is enough."""
    number = draw(st.integers(1, most))
    weight = draw(
        st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 1e3)), min_size=number, max_size=number)
    )
    features = draw(
        st.lists(st.sampled_from([1, 2, 3, 5, 8, 9, 64]), min_size=number, max_size=number)
    )
    copies = draw(st.lists(st.integers(1, 3), min_size=number, max_size=number))
    least = bytes_of(features, copies, [1] * number)
    most_bytes = bytes_of(features, copies, [8] * number)
    return weight, features, copies, draw(st.integers(least, most_bytes + 2))


@given(problem=problems())
@example(problem=([1.0, 1.0], [3, 5], [2, 3], 31))
@example(problem=([1.0, 4.0, 0.0], [64, 64, 8], [1, 3, 1], 77))
@settings(max_examples=200, deadline=None)
def test_error_is_within_one_step_of_the_best_choice_of_all(problem) -> None:
    weight, features, copies, budget = problem
    bits = allocate(weight, features, copies, budget)
    used = bytes_of(features, copies, bits)
    assert used <= budget
    choices = itertools.product(BIT_WIDTHS, repeat=len(weight))
    best = min(
        error_of(weight, features, list(choice))
        for choice in choices
        if bytes_of(features, copies, list(choice)) <= budget
    )
    rate, cost = next_step(weight, features, copies, bits)
    left = budget - used
    assert cost == 0 or left < cost  # nothing is left to gain, or it does not fit
    gap = error_of(weight, features, bits) - best
    assert gap <= rate * left * (1 + 1e-9) + 1e-9 * best


@given(problem=problems())
@settings(max_examples=100, deadline=None)
def test_choice_is_the_best_where_the_budget_ends_with_a_step(problem) -> None:
    weight, features, copies, budget = problem
    bits = allocate(weight, features, copies, budget)
    used = bytes_of(features, copies, bits)
    assert allocate(weight, features, copies, used) == bits
    best = min(
        error_of(weight, features, list(choice))
        for choice in itertools.product(BIT_WIDTHS, repeat=len(weight))
        if bytes_of(features, copies, list(choice)) <= used
    )
    assert error_of(weight, features, bits) == pytest.approx(best, rel=1e-9)


@given(problem=problems(most=30), more=st.integers(0, 200))
@settings(max_examples=100, deadline=None)
def test_more_budget_never_takes_bits_away(problem, more: int) -> None:
    weight, features, copies, budget = problem
    fewer = allocate(weight, features, copies, budget)
    wider = allocate(weight, features, copies, budget + more)
    assert all(early <= late for early, late in zip(fewer, wider, strict=True))


@given(problem=problems(most=30))
@settings(max_examples=100, deadline=None)
def test_rows_without_weight_get_one_bit_and_the_others_eight_if_they_can(problem) -> None:
    weight, features, copies, _ = problem
    bits = allocate(weight, features, copies, 10**9)
    assert bits == [8 if each > 0 else 1 for each in weight]


def test_allocation_by_hand() -> None:
    # 64 features: 12, 20, 36 and 68 bytes. Steps gain 64 w (8/9, 8/75, ...) for 8, 16, 32 bytes:
    # per byte 7.1 w, 0.43 w and 0.0089 w.
    weight, features, copies = [100.0, 1.0, 10.0], [64] * 3, [1] * 3
    found = [allocate(weight, features, copies, 36 + more) for more in (7, 8, 16, 31, 32, 40, 56)]
    assert found == [
        [1, 1, 1],
        [2, 1, 1],  # row 0 to 2 bits, 711 per byte
        [2, 1, 2],  # row 2 to 2 bits, 71
        [2, 1, 2],  # row 0 to 4 bits is next, and does not fit
        [4, 1, 2],  # 43
        [4, 2, 2],  # row 1 to 2 bits, 7.1
        [4, 2, 4],  # row 2 to 4 bits, 4.3
    ]


def test_row_that_goes_to_more_receivers_costs_more() -> None:
    assert allocate([1.0, 1.0], [64, 64], [1, 3], 4 * 12 + 8) == [2, 1]
    assert allocate([1.0, 4.0], [64, 64], [1, 3], 4 * 12 + 24) == [1, 2]


def test_error_of_a_row_counts_all_its_elements() -> None:
    # 5 and 12 bytes; to 2 bits, row 0 gains 7.1 for 1 byte, and row 1 114 for 8, 14 per byte
    assert allocate([1.0, 2.0], [8, 64], [1, 1], 17 + 8) == [1, 2]


def test_equal_rows_go_by_number() -> None:
    assert allocate([1.0] * 4, [64] * 4, [1] * 4, 4 * 12 + 2 * 8 + 7) == [2, 2, 1, 1]
    assert allocate([1.0] * 4, [64] * 4, [1] * 4, 4 * 20 + 16) == [4, 2, 2, 2]


def test_step_within_the_same_byte_is_free() -> None:
    # one feature: 5 bytes whatever the bits; two: 5, 5, 5 and 6
    assert allocate([1e-9, 1.0], [1, 2], [1, 1], 10) == [8, 4]
    assert allocate([0.0, 1e-9], [1, 2], [1, 1], 11) == [1, 8]


def test_no_step_gains_more_per_byte_than_the_one_before() -> None:
    gains = [1 / (2**bits - 1) ** 2 - 1 / (2 ** (2 * bits) - 1) ** 2 for bits in (1, 2, 4)]
    for num_features in range(1, 2000):
        sizes = [packed_row_bytes(num_features, bits) for bits in BIT_WIDTHS]
        costs = [late - early for early, late in itertools.pairwise(sizes)]
        rates = [gain / cost if cost else math.inf for gain, cost in zip(gains, costs, strict=True)]
        assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e300])
def test_only_ratios_of_weights_matter(scale: float) -> None:
    weight = [3.0, 1.0, 0.5, 2.0]
    expected = allocate(weight, [64] * 4, [1] * 4, 100)
    assert allocate([scale * each for each in weight], [64] * 4, [1] * 4, 100) == expected


def test_many_rows_use_the_budget() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(20_000, generator=generator, dtype=torch.float64) ** 4
    features = torch.full((20_000,), 64)
    bits = allocate_bits(weight, features, torch.ones_like(features), budget_bytes=24 * 20_000)
    used = (4 + 8 * bits.long()).sum()
    assert 24 * 20_000 - 32 < used <= 24 * 20_000
    order = weight.argsort()
    assert bool((bits[order].long().diff() >= 0).all())  # equal costs: bits go up with weight


def test_no_rows_need_no_budget() -> None:
    assert allocate([], [], [], 0) == []


@pytest.mark.parametrize("budget", [48, 0, -5])
def test_budget_below_one_bit_names_the_least(budget: int) -> None:
    text = f"at least 49 bytes, .* for 'budget_bytes', got {budget}. Give a larger budget"
    with pytest.raises(ValueError, match=text):
        allocate([1.0, 0.0], [64, 65], [3, 1], budget)
    assert allocate([1.0, 0.0], [64, 65], [3, 1], 49) == [1, 1]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1e-9])
def test_weight_that_is_negative_or_not_finite_raises(value: float) -> None:
    text = (
        rf"allocate_bits: expected finite numbers of at least 0 for 'weight', got {value} for row"
    )
    with pytest.raises(ValueError, match=text + " 1"):
        allocate([1.0, value], [8, 8], [1, 1], 100)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((torch.ones(2), torch.ones(2).long(), torch.ones(2).long(), 9), TypeError, "'weight'"),
        ((torch.ones(2).double(), torch.ones(2), torch.ones(2).long(), 9), TypeError, "'row_feat"),
        ((torch.ones(2).double(), torch.ones(2).long(), torch.ones(2), 9), TypeError, "'copies'"),
        (
            (torch.ones(2).double(), torch.ones(3).long(), torch.ones(2).long(), 9),
            ValueError,
            r"got shape \(3,\) for 'row_features' and \(2,\) for 'weight'",
        ),
        (
            (torch.ones(2, 1).double(), torch.ones(2).long(), torch.ones(2).long(), 9),
            ValueError,
            r"got shape \(2, 1\) for 'weight'",
        ),
        (
            (torch.ones(1).double(), torch.tensor([0]), torch.tensor([1]), 9),
            ValueError,
            "at least 1 for 'row_features', got 0 for row 0",
        ),
        (
            (torch.ones(1).double(), torch.tensor([1]), torch.tensor([0]), 9),
            ValueError,
            "at least 1 for 'copies', got 0 for row 0",
        ),
        (
            (torch.ones(1).double(), torch.tensor([1]), torch.tensor([1]), 9.0),
            TypeError,
            "an int for 'budget_bytes', got 9.0",
        ),
    ],
)
def test_argument_that_is_not_allowed_raises(
    arguments: tuple[Tensor, Tensor, Tensor, int], error: type[Exception], text: str
) -> None:
    weight, features, copies, budget = arguments
    with pytest.raises(error, match=text):
        allocate_bits(weight, features, copies, budget_bytes=budget)
