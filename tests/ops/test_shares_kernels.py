"""The kernels for shares against their twins, bit for bit, on every instruction set."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from horovod_sylvie.ops import shares_reference, top_k_kernels
from horovod_sylvie.ops.native import native_or_none
from horovod_sylvie.ops.sections import ShareSections

from .row_cases import instruction_sets, same_bits
from .shares_cases import CASES, OFFSET, ks_of, same, select_kernel, select_twin
from .top_k_cases import GRAD_DTYPES, VALUE_DTYPES, gradient

pytestmark = pytest.mark.skipif(
    not instruction_sets(), reason="needs the native library, which is not built"
)


@pytest.fixture
def set_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("density", [0.0001, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("distribution", ["normal", "constant", "few values", "nonfinite"])
@pytest.mark.parametrize(("num_elements", "num_shares"), CASES)
def test_select_kernel_with_any_hints_equals_twin(
    num_elements: int, num_shares: int, distribution: str, density: float, set_threads
):
    grad = gradient(distribution, num_elements)
    ks = ks_of(num_elements, num_shares, density)
    residual = torch.randn(num_elements)
    value_dtypes = itertools.cycle(VALUE_DTYPES)
    for grad_dtype, threads in zip(GRAD_DTYPES, (1, 2, 3), strict=True):
        set_threads(threads)
        arguments = (grad.to(grad_dtype), residual, ks, next(value_dtypes), 0.3)
        expected = select_twin(*arguments)
        thresholds = expected.report[0]
        for instruction_set, hints in itertools.zip_longest(
            instruction_sets(), ([0] * num_shares, thresholds, [2**32 - 1] * num_shares)
        ):
            outcome = select_kernel(
                *arguments,
                hints=hints,
                in_place=threads == 2,
                instruction_set=instruction_set or "baseline",
            )
            filled = sum(k > 0 for k in ks)
            assert outcome.report[0][:filled] == thresholds[:filled]
            assert same(outcome._replace(report=expected.report), expected)
            assert outcome.report[1] == expected.report[1]


def test_select_kernel_without_gradient_equals_twin():
    residual = torch.randn(50_000)
    ks = ks_of(50_000, 3, 0.02)
    expected = select_twin(None, residual, ks, torch.bfloat16)
    assert same(select_kernel(None, residual, ks, torch.bfloat16), expected)


@pytest.mark.parametrize("instruction_set", instruction_sets())
def test_select_kernel_whose_first_guess_fails_equals_twin(instruction_set: str, set_threads):
    # In each share, far more large elements in one place than a sample of lines expects; and more
    # equals than there is room for candidates
    spiky = torch.randn(1 << 18)
    spiky[100_000:100_500] *= 1000.0
    crowded = torch.ones(300_000)
    crowded[200_000::50] = 2.0
    for grad, threads in itertools.product((spiky, crowded), (1, 3)):
        set_threads(threads)
        ks = ks_of(grad.numel(), 2, 0.002)
        expected = select_twin(grad, torch.zeros_like(grad), ks)
        for hint in (0, 1, 2, 3, 0x3F7FFFFF, 0x42000000):
            outcome = select_kernel(
                grad,
                torch.zeros_like(grad),
                ks,
                hints=[hint, hint],
                in_place=True,
                instruction_set=instruction_set,
            )
            assert same(outcome, expected), (threads, hint)


@pytest.mark.parametrize("out_dtype", GRAD_DTYPES)
@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
@pytest.mark.parametrize(("num_elements", "num_shares"), CASES)
def test_add_and_clear_kernels_equal_twins(
    num_elements: int,
    num_shares: int,
    value_dtype: torch.dtype,
    out_dtype: torch.dtype,
    set_threads,
):
    ks = ks_of(num_elements, num_shares, 0.3)
    rows = select_twin(None, torch.randn(num_elements), ks, value_dtype).rows
    shape: dict[str, Any] = {"offset": OFFSET, "ks": ks, "value_dtype": value_dtype}
    for skip, scale in (([], 1.0), ([num_shares - 1], -0.3), (list(range(num_shares)), 1.0)):
        expected = torch.full((num_elements,), 7.0, dtype=out_dtype)
        arguments = shape | {"scale": scale, "skip": skip}
        assert shares_reference.add_shares(rows, out=expected, **arguments) == (-1, 0)
        for threads, instruction_set in zip((1, 2, 3), instruction_sets(), strict=False):
            set_threads(threads)
            out = torch.full_like(expected, 9.0)
            report = top_k_kernels.add(
                native_or_none(),
                [ShareSections(rows, array=out, skip=skip, **shape)],
                scale=scale,
                instruction_set=instruction_set,
            )
            assert report.tolist() == [[-1, 0]]
            assert same_bits(out, expected)
    expected, tensor = torch.full((num_elements,), 7.0), torch.full((num_elements,), 7.0)
    assert shares_reference.clear_shares(rows, tensor=expected, **shape) == (-1, 0)
    report = top_k_kernels.clear(native_or_none(), [ShareSections(rows, array=tensor, **shape)])
    assert report.tolist() == [[-1, 0]]
    assert torch.equal(tensor, expected)
    assert int((tensor == 0).sum()) == sum(ks)
