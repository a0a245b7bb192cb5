"""The kernels that stream into large arrays: the twins' bits, wherever the arrays start and end."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from horovod_sylvie.ops import shares_reference, top_k_kernels, top_k_reference
from horovod_sylvie.ops.native import native_or_none
from horovod_sylvie.ops.sections import RankSections, ShareSections
from horovod_sylvie.ops.selection import Selection

from . import shares_cases, top_k_cases
from .row_cases import instruction_sets, same_bits
from .top_k_cases import GRAD_DTYPES, VALUE_DTYPES, gradient

pytestmark = pytest.mark.skipif(
    not instruction_sets(), reason="needs the native library, which is not built"
)

# More than kStreamedElements of cpp/streamed_stores.hpp, and a part of a vector at the end
D = (1 << 19) + 3 * 4096 + 21
GUARD = 64
MARK = 7.0


@pytest.fixture
def set_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def guarded(distance: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Make an array that starts so many elements after a line of 64 bytes. [D], with its guards."""
    whole = torch.full((D + 2 * GUARD + 16,), MARK, dtype=dtype)
    to_line = -whole.data_ptr() % 64 // whole.element_size()
    begin = to_line + (GUARD + distance) // 16 * 16 + distance % 16
    array = whole[begin : begin + D]
    assert array.data_ptr() % 64 == distance % 16 * whole.element_size() % 64
    return array, whole


def assert_guards_kept(array: Tensor, whole: Tensor) -> None:
    begin = array.storage_offset()
    assert (whole[:begin] == MARK).all()
    assert (whole[begin + D :] == MARK).all()


@pytest.mark.parametrize("distance", [0, 1, 8])
@pytest.mark.parametrize("grad_dtype", [None, *GRAD_DTYPES])
@pytest.mark.parametrize("distribution", ["normal", "nonfinite", "few values"])
def test_select_into_large_array_equals_twin(
    distribution: str, grad_dtype: torch.dtype | None, distance: int, set_threads
):
    numbers = gradient(distribution, D)
    grad = None if grad_dtype is None else numbers.to(grad_dtype)
    residual = numbers.nan_to_num(0.0, 0.0, 0.0).flip(0)
    for k, value_dtype, threads in ((700, torch.bfloat16, 1), (90_000, torch.float32, 3)):
        set_threads(threads)
        expected = top_k_cases.select_twin(grad, residual, k, value_dtype, 0.3)
        for hint, instruction_set in itertools.product((0, expected.report[0]), instruction_sets()):
            array, whole = guarded(distance)
            section = torch.full_like(expected.section, 0x5A)
            selection = Selection(
                grad, residual, (k,), 0.3, value_dtype, (hint,), array, section[None], 0
            )
            report = top_k_kernels.select(
                native_or_none(), [selection], instruction_set=instruction_set
            )
            outcome = top_k_cases.Outcome(tuple(report[0].tolist()), section, array)
            assert top_k_cases.same(outcome, expected), (instruction_set, hint, k)
            assert_guards_kept(array, whole)


@pytest.mark.parametrize("instruction_set", instruction_sets())
def test_select_into_large_array_that_puts_sums_back_equals_twin(instruction_set: str, set_threads):
    # More equals than there is room for; and a guess that is too high, so that all are put back
    crowded = torch.ones(D)
    crowded[D // 2 :: 50] = 2.0
    spiky = torch.randn(D)
    spiky[100_000:100_300] *= 1000.0
    for numbers, threads in itertools.product((crowded, spiky), (1, 3)):
        set_threads(threads)
        expected = top_k_cases.select_twin(numbers, torch.zeros(D), 400, torch.bfloat16)
        for hint in (0, 1, 2, 3, 0x3F7FFFFF, 0x45000000):
            outcome = top_k_cases.select_kernel(
                numbers,
                torch.zeros(D),
                400,
                torch.bfloat16,
                hint=hint,
                instruction_set=instruction_set,
            )
            assert top_k_cases.same(outcome, expected), (threads, hint)


@pytest.mark.parametrize("num_shares", [2, 5])
def test_shares_of_large_array_equal_twins(num_shares: int, set_threads):
    grad, residual = torch.randn(D), torch.randn(D)
    ks = shares_cases.ks_of(D, num_shares, 0.01)
    expected = shares_cases.select_twin(grad, residual, ks)
    shape = {"offset": shares_cases.OFFSET, "ks": ks, "value_dtype": torch.float32}
    expected_out = torch.empty(D)
    shares_reference.add_shares(expected.rows, out=expected_out, scale=0.3, skip=[1], **shape)
    for threads, instruction_set in itertools.product((1, 2), instruction_sets()):
        set_threads(threads)
        outcome = shares_cases.select_kernel(grad, residual, ks, instruction_set=instruction_set)
        assert shares_cases.same(outcome, expected)
        array, whole = guarded(0)
        report = top_k_kernels.add(
            native_or_none(),
            [ShareSections(expected.rows, array=array, skip=[1], **shape)],
            scale=0.3,
            instruction_set=instruction_set,
        )
        assert report.tolist() == [[-1, 0]]
        assert same_bits(array, expected_out)
        assert_guards_kept(array, whole)


@pytest.mark.parametrize("distance", [0, 1, 8])
@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
@pytest.mark.parametrize("out_dtype", GRAD_DTYPES)
def test_add_into_large_array_equals_twin(
    out_dtype: torch.dtype, value_dtype: torch.dtype, distance: int, set_threads
):
    sections = [
        top_k_cases.select_twin(None, gradient(name, D), D // 30, value_dtype).section
        for name in ("normal", "ascending", "denormal")
    ]
    for skip, scale in (([], 0.3), ([1], -1e30), ([0, 1, 2], 1.0)):
        arguments = {"offset": 0, "k": D // 30, "value_dtype": value_dtype, "skip": skip}
        expected = torch.empty(D, dtype=out_dtype)
        payloads = torch.stack(sections)
        assert top_k_reference.add_selected(
            payloads, num_elements=D, scale=scale, out=expected, **arguments
        ) == (-1, 0)
        for threads, instruction_set in zip((1, 2, 3), instruction_sets(), strict=False):
            set_threads(threads)
            array, whole = guarded(distance, out_dtype)
            report = top_k_kernels.add(
                native_or_none(),
                [RankSections(payloads, array=array, **arguments)],
                scale=scale,
                instruction_set=instruction_set,
            )
            assert report.tolist() == [[-1, 0]]
            assert same_bits(array, expected), (skip, instruction_set)
            assert_guards_kept(array, whole)
