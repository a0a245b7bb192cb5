"""The kernels' conversions of fp32 to bf16 in plain PyTorch, bit for bit; see cpp/float_bits.hpp.

A bf16 number is kept as its 16 bits in int64.
"""

from __future__ import annotations

import torch
from torch import Tensor


def as_bits(value: Tensor) -> Tensor:
    """Return the 32 bits of float32 numbers, as int64."""
    return value.contiguous().view(torch.int32).to(torch.int64) & 0xFFFFFFFF


def from_bf16(bits: Tensor) -> Tensor:
    """Return the float32 value of bf16 bits; exact."""
    return (bits << 16).to(torch.int32).view(torch.float32)


def bf16_down(value: Tensor) -> Tensor:
    """Round toward minus infinity; below the smallest finite bf16 lies -inf."""
    bits = as_bits(value)
    return (bits + 0xFFFF * (bits >> 31)) >> 16 & 0xFFFF


def bf16_up(value: Tensor) -> Tensor:
    """Round toward plus infinity values that are not negative."""
    return (as_bits(value) + 0xFFFF) >> 16 & 0xFFFF


def bf16_nearest(value: Tensor) -> Tensor:
    """Round to nearest, ties to even. NaN gives bits that are no finite number's."""
    bits = as_bits(value)
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF
