"""The kernels against their twins, bit for bit, on every instruction set of this machine."""

from __future__ import annotations

import itertools

import pytest
import torch

from horovod_sylvie.ops import top_k_kernels, top_k_reference
from horovod_sylvie.ops.native import native_or_none
from horovod_sylvie.ops.sections import RankSections

from .row_cases import instruction_sets, same_bits
from .top_k_cases import (
    DISTRIBUTIONS,
    GRAD_DTYPES,
    SIZES,
    VALUE_DTYPES,
    counts_of,
    gradient,
    same,
    select_kernel,
    select_twin,
)

pytestmark = pytest.mark.skipif(
    not instruction_sets(), reason="needs the native library, which is not built"
)


@pytest.fixture
def set_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("num_elements", SIZES)
def test_select_kernel_with_any_hint_equals_twin(num_elements: int, distribution: str, set_threads):
    grad = gradient(distribution, num_elements)
    # Each combination of a few choices: going round in circles of coprime lengths meets most pairs
    threads = itertools.cycle([1, 2, 3])
    dtypes = itertools.cycle(GRAD_DTYPES)
    scales = itertools.cycle([1.0, -0.3])
    residuals = itertools.cycle([torch.zeros(num_elements), torch.randn(num_elements)])
    value_dtypes = itertools.cycle([*VALUE_DTYPES, *VALUE_DTYPES[::-1], torch.float32])
    for k in counts_of(num_elements):
        arguments = (grad.to(next(dtypes)), next(residuals), k, next(value_dtypes), next(scales))
        expected = select_twin(*arguments)
        threshold = expected.report[0]
        hints = [0, threshold, threshold // 2, threshold + (1 << 20), 0x7F800000, 2**32 - 1, 12345]
        for hint, instruction_set in zip(hints, itertools.cycle(instruction_sets()), strict=False):
            set_threads(next(threads))
            outcome = select_kernel(
                *arguments, hint=hint, in_place=hint % 2 == 0, instruction_set=instruction_set
            )
            assert same(outcome, expected), (k, hint, instruction_set)


@pytest.mark.parametrize("instruction_set", instruction_sets())
@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
@pytest.mark.parametrize("grad_dtype", [None, *GRAD_DTYPES])
@pytest.mark.parametrize("distribution", ["normal", "denormal", "largest", "nonfinite"])
def test_select_kernel_of_every_dtype_equals_twin(
    distribution: str,
    grad_dtype: torch.dtype | None,
    value_dtype: torch.dtype,
    instruction_set: str,
):
    numbers = gradient(distribution, 9001)
    residual = numbers.nan_to_num(0.0, 0.0, 0.0).flip(0)
    grad = None if grad_dtype is None else numbers.to(grad_dtype)
    for scale, k in ((1.0, 90), (0.7, 4500), (1e38, 9000)):
        expected = select_twin(grad, residual, k, value_dtype, scale)
        outcome = select_kernel(
            grad, residual, k, value_dtype, scale, instruction_set=instruction_set
        )
        assert same(outcome, expected), (scale, k)


@pytest.mark.parametrize("instruction_set", instruction_sets())
def test_select_kernel_of_every_float16_adds_its_value(instruction_set: str):
    bits = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        grad = bits.view(dtype)
        expected = select_twin(grad, torch.zeros(1 << 16), 1)
        outcome = select_kernel(grad, torch.zeros(1 << 16), 1, instruction_set=instruction_set)
        assert same(outcome, expected), dtype


@pytest.mark.parametrize("instruction_set", instruction_sets())
def test_select_kernel_of_neighbouring_lengths_equals_twin(instruction_set: str):
    for num_elements in [*range(1, 70), *range(2040, 2060), *range(4090, 4120)]:
        grad = torch.randn(num_elements)
        k = 1 + num_elements // 3
        residual = torch.randn(num_elements)
        expected = select_twin(grad, residual, k)
        assert same(select_kernel(grad, residual, k, instruction_set=instruction_set), expected)


def test_select_kernel_with_more_equals_than_room_equals_twin(set_threads):
    # Neighbours in float32: most elements equal the threshold, and a few later ones are above it
    steps = torch.ones(300_000, dtype=torch.int32)
    steps[200_000::50] = 2
    steps[250_000::90] = 3
    grad = (0x3F800000 + steps).view(torch.float32)
    expected = select_twin(grad, torch.zeros_like(grad), 3000)
    for threads, instruction_set in itertools.product((1, 2, 3), instruction_sets()):
        set_threads(threads)
        for hint in (0, 0x3F80FFFF, 0x3F810001, 0x3F810002):
            outcome = select_kernel(
                grad,
                torch.zeros_like(grad),
                3000,
                hint=hint,
                in_place=True,
                instruction_set=instruction_set,
            )
            assert same(outcome, expected), (threads, instruction_set, hint)


@pytest.mark.parametrize("grad_dtype", [torch.float32, torch.bfloat16])
def test_select_kernel_misled_by_its_sample_equals_twin(grad_dtype: torch.dtype):
    # All large elements in one place, which a sample of lines meets too often or not at all; the
    # hint, which is refused, decides which lines are drawn
    numbers = torch.randn(1 << 18)
    numbers[100_000:100_250] *= 1000.0
    numbers[7] = float("nan")
    grad = numbers.to(grad_dtype)
    residual = torch.randn(1 << 18)
    expected = select_twin(grad, residual, 250, torch.bfloat16)
    for hint in range(150):
        outcome = select_kernel(grad, residual, 250, torch.bfloat16, hint=hint, in_place=True)
        assert same(outcome, expected), hint


def mix64(value: int) -> int:
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31


def test_select_kernel_whose_every_guess_fails_equals_twin(set_threads):
    # All large elements where guess_threshold.cpp looks: one line of 16 in 64, at random. Every
    # guess is too high, until all elements are candidates, for whom there is no room by far
    lines = torch.tensor([64 * share + (mix64(share) >> 32) * 64 // 2**32 for share in range(16)])
    numbers = torch.randn(1 << 18).round(decimals=1)
    numbers.view(-1, 16)[lines] += 1000.0 + torch.randn(16, 16)
    for threads, instruction_set in itertools.product((1, 2, 3), instruction_sets()):
        set_threads(threads)
        for k in (250, 300):
            expected = select_twin(None, numbers, k)
            outcome = select_kernel(None, numbers, k, instruction_set=instruction_set)
            assert same(outcome, expected), (threads, instruction_set, k)


def test_select_kernel_where_denormals_are_flushed_gives_the_same_bits():
    grad, residual = gradient("denormal", 5000), gradient("denormal", 5000)
    expected = select_twin(grad, residual, 1000, torch.bfloat16)
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush denormals")
    try:
        outcomes = [
            select_kernel(grad, residual, 1000, torch.bfloat16, instruction_set=each)
            for each in instruction_sets()
        ]
    finally:
        torch.set_flush_denormal(False)
    assert all(same(outcome, expected) for outcome in outcomes)


@pytest.mark.parametrize("out_dtype", GRAD_DTYPES)
@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
@pytest.mark.parametrize("num_elements", SIZES)
def test_add_kernel_equals_twin(
    num_elements: int, value_dtype: torch.dtype, out_dtype: torch.dtype, set_threads
):
    k = max(1, num_elements // 3)
    sections = [
        select_twin(None, gradient(name, num_elements), k, value_dtype).section
        for name in ("normal", "ascending", "denormal", "cauchy")
    ]
    padding = torch.full((4, 8), 0xFF, dtype=torch.uint8)
    payloads = torch.cat((padding, torch.stack(sections), padding), dim=1)
    for skip, scale in (([], 1.0), ([3], 0.3), ([0, 2], -1e30), ([0, 1, 2, 3], 1.0)):
        arguments = {"offset": 8, "k": k, "value_dtype": value_dtype, "skip": skip}
        expected = torch.full((num_elements,), 7.0, dtype=out_dtype)
        assert top_k_reference.add_selected(
            payloads, num_elements=num_elements, out=expected, scale=scale, **arguments
        ) == (-1, 0)
        for threads, instruction_set in zip((1, 2, 3), instruction_sets(), strict=False):
            set_threads(threads)
            out = torch.full_like(expected, 9.0)
            report = top_k_kernels.add(
                native_or_none(),
                [RankSections(payloads, array=out, **arguments)],
                scale=scale,
                instruction_set=instruction_set,
            )
            assert report.tolist() == [[-1, 0]]
            assert same_bits(out, expected), (skip, instruction_set)
