"""The checksum of bytes: its definition, what it finds, and that the kernel is its twin."""

from __future__ import annotations

import pytest
import torch

from horovod_sylvie.ops.checksum import (
    checksum,
    checksum_kernel,
    checksum_rows,
    checksum_twin,
)
from horovod_sylvie.ops.native import native_or_none

from .row_cases import instruction_sets

MASK = (1 << 64) - 1


def random_bytes(count: int) -> torch.Tensor:
    return torch.randint(256, (count,), dtype=torch.uint8)


def mix64(value: int) -> int:
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK
    return value ^ value >> 31


def test_checksum_is_the_sum_of_mixed_words():
    data = random_bytes(80)
    words = [
        int.from_bytes(bytes(data[place : place + 8].tolist()), "little")
        for place in range(0, 80, 8)
    ]
    expected = sum(mix64(word ^ mix64(number + 1)) for number, word in enumerate(words))
    assert checksum(data) == int(checksum_twin(data[None])) & MASK == expected & MASK


@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.parametrize("nbytes", [0, 8, 16, 72, 4096, 8 * 65537, 3_000_008])
def test_checksum_kernel_equals_twin(nbytes: int, num_rows: int):
    rows = random_bytes(num_rows * nbytes).view(num_rows, nbytes)
    expected = checksum_twin(rows)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            for instruction_set in instruction_sets():
                sums = checksum_kernel(native_or_none(), rows, instruction_set=instruction_set)
                assert torch.equal(sums, expected)
    finally:
        torch.set_num_threads(before)


def test_checksum_of_rows_is_that_of_each():
    rows = random_bytes(400).view(5, 80)
    assert [number & MASK for number in checksum_rows(rows).tolist()] == [
        checksum(row) for row in rows
    ]


def test_checksum_of_bytes_anywhere_in_memory_is_the_same():
    data = random_bytes(8000)
    moved = torch.cat((random_bytes(3), data))[3:]
    assert checksum(moved) == checksum(data)


def test_checksum_after_any_single_bit_flip_differs():
    data = random_bytes(4000)
    expected = checksum(data)
    for bit in torch.randint(32_000, (2000,)).tolist():
        flip = 1 << bit % 8
        data[bit // 8] ^= flip
        assert checksum(data) != expected
        data[bit // 8] ^= flip
    assert checksum(data) == expected


def test_checksum_after_words_change_places_differs():
    words = torch.arange(1, 101)
    expected = checksum(words.view(torch.uint8))
    for first in range(99):
        for second in (first + 1, 99 - first):
            swapped = words.clone()
            swapped[first], swapped[second] = words[second], words[first]
            if first != second:
                assert checksum(swapped.view(torch.uint8)) != expected


def test_checksum_of_zeros_depends_on_their_number():
    sums = {checksum(torch.zeros(8 * count, dtype=torch.uint8)) for count in range(50)}
    assert len(sums) == 50


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        ([1], TypeError, "checksum: expected a tensor for 'data', got list"),
        (torch.zeros(8), TypeError, "expected torch.uint8 for 'data', got torch.float32"),
        (torch.zeros(2, 8, dtype=torch.uint8), ValueError, "one dimension for 'data'"),
        (torch.zeros(16, dtype=torch.uint8)[::2], ValueError, "contiguous tensor for 'data'"),
        (torch.zeros(9, dtype=torch.uint8), ValueError, "multiple of 8 bytes for 'data', got 9"),
    ],
)
def test_checksum_given_wrong_data_raises(data: object, error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        checksum(data)


def test_checksum_of_rows_of_a_wrong_length_raises():
    with pytest.raises(ValueError, match="checksum_rows: expected a shape .* for 'rows'"):
        checksum_rows(torch.zeros(2, 9, dtype=torch.uint8))


@pytest.mark.skipif(not instruction_sets(), reason="needs the native library")
@pytest.mark.parametrize(
    ("argument", "value", "text"),
    [
        ("rows_bytes", 18, "expected a multiple of 8 for each row for 'rows_bytes', got 9"),
        ("rows_bytes", 17, "expected 16 for 'rows_bytes', got 17"),
        ("num_rows", 0, "for 'num_rows', got 0"),
    ],
)
def test_checksum_binding_given_wrong_size_raises(argument: str, value: int, text: str):
    arguments = {"rows": 0, "rows_bytes": 16, "num_rows": 2, "sums": 0, "num_threads": 1}
    with pytest.raises(ValueError, match=text):
        native_or_none().checksum(**arguments | {argument: value})
