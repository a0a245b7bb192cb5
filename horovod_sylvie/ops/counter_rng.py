"""The kernels' random numbers in plain PyTorch, bit for bit; see cpp/counter_rng.hpp.

A pure function of (key, row id, column). PyTorch has no unsigned 64-bit arithmetic, but int64
wraps, so products are right and only right shifts need a mask.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

_GOLDEN64: Final = 0x9E3779B97F4A7C15
_GOLDEN32: Final = 0x9E3779B9
_MASK32: Final = 0xFFFFFFFF
_LANES: Final = 16
_COLUMNS_PER_BLOCK: Final = 32


def random_half_words(row_ids: Tensor, num_features: int, key: int) -> Tensor:
    """Draw 16 random bits for each column of each row.

    Args:
        row_ids: Row ids. [b], int64.
        num_features: Number of columns F.
        key: Key of the call, in [0, 2**64).

    Returns:
        Numbers in [0, 65536). [b, F], int64.
    """
    mixed_key = _mix64(torch.tensor(_signed(key), device=row_ids.device))
    row_keys = _mix64(mixed_key + (row_ids + 1) * _signed(_GOLDEN64))[:, None]  # [b, 1]
    num_blocks = -(-num_features // _COLUMNS_PER_BLOCK)
    counters = torch.arange(num_blocks * _LANES, device=row_ids.device)
    words = counters * _GOLDEN32 + row_keys & _MASK32  # [b, 16 * blocks]
    words = (words ^ words >> 16) * 0x21F0AAAD & _MASK32
    words = words ^ row_keys >> 32 & _MASK32
    words = (words ^ words >> 15) * 0x735A2D97 & _MASK32
    words = words ^ words >> 15
    lanes = words.view(-1, num_blocks, _LANES)
    columns = torch.cat((lanes & 0xFFFF, lanes >> 16), dim=2)  # [b, blocks, 32]
    return columns.flatten(1)[:, :num_features]


def _mix64(value: Tensor) -> Tensor:
    value = (value ^ _shift_right(value, 30)) * _signed(0xBF58476D1CE4E5B9)
    value = (value ^ _shift_right(value, 27)) * _signed(0x94D049BB133111EB)
    return value ^ _shift_right(value, 31)


def _shift_right(value: Tensor, count: int) -> Tensor:
    """Shift in zeros, as unsigned numbers do."""
    return value >> count & (1 << 64 - count) - 1


def _signed(word: int) -> int:
    """Return the int64 of the same 64 bits."""
    return word - (1 << 64) if word >> 63 else word
