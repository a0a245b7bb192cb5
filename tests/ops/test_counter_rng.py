"""The random numbers against an independent version in Python's integers, and their spread."""

from __future__ import annotations

import pytest
import torch

from horovod_sylvie.ops.counter_rng import random_half_words

MASK64 = (1 << 64) - 1
MASK32 = (1 << 32) - 1


def mix64(value: int) -> int:
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK64
    return value ^ value >> 31


def half_word(key: int, row_id: int, column: int) -> int:
    row_key = mix64(mix64(key) + (row_id + 1) * 0x9E3779B97F4A7C15 & MASK64)
    block, place = divmod(column, 32)
    word = (16 * block + place % 16) * 0x9E3779B9 + row_key & MASK32
    word = (word ^ word >> 16) * 0x21F0AAAD & MASK32
    word ^= row_key >> 32
    word = (word ^ word >> 15) * 0x735A2D97 & MASK32
    word ^= word >> 15
    return word >> 16 if place >= 16 else word & 0xFFFF


@pytest.mark.parametrize("key", [0, 1, MASK64, 0x0123456789ABCDEF])
def test_half_words_of_any_key_equal_integer_arithmetic(key: int):
    row_ids = torch.tensor([0, 1, 59_999, 2**40, 2**63 - 1])
    drawn = random_half_words(row_ids, 75, key)
    expected = [[half_word(key, int(row), column) for column in range(75)] for row in row_ids]
    assert drawn.tolist() == expected


def test_half_words_are_uniform_in_their_high_and_low_bits():
    """Chi-square over 256 cells; 5 deviations of its distribution."""
    drawn = random_half_words(torch.arange(2000), 512, 3).flatten()
    for cells in (drawn >> 8, drawn & 0xFF):
        counts = torch.bincount(cells, minlength=256).to(torch.float64)
        expected = drawn.numel() / 256
        chi_square = ((counts - expected) ** 2 / expected).sum().item()
        assert abs(chi_square - 255) < 5 * (2 * 255) ** 0.5


@pytest.mark.parametrize("neighbour", ["column", "half", "row", "key"])
def test_half_words_of_neighbours_are_uncorrelated(neighbour: str):
    drawn = random_half_words(torch.arange(2001), 513, 3).to(torch.float64) / 65536 - 0.5
    other = random_half_words(torch.arange(2001), 513, 4).to(torch.float64) / 65536 - 0.5
    left, right = {
        "column": (drawn[:, 1:], drawn[:, :-1]),
        "half": (drawn[:, 16:], drawn[:, :-16]),
        "row": (drawn[1:], drawn[:-1]),
        "key": (drawn, other),
    }[neighbour]
    correlation = (left * right).mean().item() * 12
    assert abs(correlation) < 5 / left.numel() ** 0.5
