"""The twins against a plain description of what they do, so that kernels are held to more."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from horovod_sylvie.ops.top_k_reference import read_section

from .top_k_cases import DISTRIBUTIONS, VALUE_DTYPES, counts_of, gradient, select_twin


def largest_by_stable_sort(magnitudes: Tensor, k: int) -> Tensor:
    """Return the numbers of the k largest, the lowest first among equals, ascending. [K], int64."""
    return magnitudes.sort(descending=True, stable=True).indices[:k].sort().values


def test_select_worked_example_writes_these_bytes():
    grad = torch.tensor([1.0, -3.0, 0.5, 3.0, 2.0])
    residual = torch.tensor([0.5, 0.0, 0.25, 0.0, -8.0])
    report, section, accumulated = select_twin(grad, residual, 2)
    # Block 0 has both; elements 1 and 4; -3 and -6 as float32; padding to 16
    expected = [2, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0x40, 0xC0, 0, 0, 0xC0, 0xC0]
    assert section.tolist() == expected
    assert accumulated.tolist() == [1.5, 0.0, 0.75, 3.0, 0.0]
    assert report == (0x40400000, 0)  # 3.0


def test_select_of_bfloat16_values_leaves_what_rounding_left():
    exact = torch.tensor([1.00390625, 3.4028234e38, -3.4028234e38, 1.5])  # 1 + 2**-8 is a tie
    _, section, accumulated = select_twin(None, exact, 4, torch.bfloat16)
    selected = read_section(section, num_elements=4, k=4, value_dtype=torch.bfloat16)
    largest = torch.finfo(torch.bfloat16).max  # not Inf, which rounding would give
    assert selected.values.tolist() == [1.0, largest, -largest, 1.5]
    assert accumulated.tolist() == [0.00390625, exact[1] - largest, exact[2] + largest, 0.0]


@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("num_elements", [1, 9, 1000, 65536 + 1000])
def test_select_takes_the_largest_and_the_first_among_equals(
    num_elements: int, distribution: str, value_dtype: torch.dtype
):
    grad, residual = gradient(distribution, num_elements), torch.zeros(num_elements)
    sums = torch.where(grad.isfinite(), grad, 0.0)
    for k in counts_of(num_elements):
        report, section, accumulated = select_twin(grad, residual, k, value_dtype)
        selected = read_section(section, num_elements=num_elements, k=k, value_dtype=value_dtype)
        expected = largest_by_stable_sort(sums.abs(), k)
        assert torch.equal(selected.elements, expected)
        assert report[0] == int(sums[expected].abs().min().view(torch.int32))
        assert report[1] == int((~grad.isfinite()).sum())
        total = accumulated.clone()
        total[expected] += selected.values
        assert torch.equal(total, sums)
        others = torch.ones_like(sums, dtype=torch.bool)
        others[expected] = False
        assert torch.equal(accumulated[others], sums[others])


def test_select_keeps_the_residual_where_the_sum_is_not_finite():
    grad = torch.tensor([float("nan"), float("inf"), 3e38, 1.0, 2.0])
    residual = torch.tensor([5.0, -6.0, 3e38, 1.0, 0.5])
    report, section, accumulated = select_twin(grad, residual, 3)
    selected = read_section(section, num_elements=5, k=3, value_dtype=torch.float32)
    assert selected.elements.tolist() == [0, 1, 2]
    assert selected.values.tolist() == [5.0, -6.0, residual[2]]
    assert accumulated.tolist() == [0.0, 0.0, 0.0, 2.0, 2.5]
    assert report[1] == 3


def test_select_rounds_the_product_and_the_sum():
    grad = torch.tensor([1.0 + 2.0**-23])
    residual = torch.tensor([-1.0])
    _, section, _ = select_twin(grad, residual, 1, scale=1.0 + 2.0**-23)
    product = 1.0 + 2.0**-22  # the exact one has 2**-46 more, which a fused operation would keep
    selected = read_section(section, num_elements=1, k=1, value_dtype=torch.float32)
    assert selected.values.tolist() == [product - 1.0]
