"""The ops of the kernels as PyTorch's operators do them: what a program without kernels would run.

Not the twins, which give the same bytes: these are as short and fast as the operators allow, with
PyTorch's random numbers, and no header for rows that cannot be coded.

Shapes: N rows, B packed rows, F features, D gradient elements, K selected.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def pack(rows: Tensor, index: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Gather rows, and round each element to one of 2**bits levels at random, unbiased.

    Args:
        rows: [N, F], floating point.
        index: [B], int64.
        bits: 1, 2, 4 or 8.

    Returns:
        Minima [B, 1], steps [B, 1], and codes [B, ceil(F * bits / 8)], uint8.
    """
    levels = 2**bits - 1
    gathered = rows.index_select(0, index)
    low, high = torch.aminmax(gathered, dim=1, keepdim=True)
    step = (high - low) / levels
    noise = torch.rand_like(gathered)
    codes = ((gathered - low) / step + noise).clamp_(0, levels).to(torch.uint8)
    return low, step, pack_codes(codes, bits)


def pack_two_means(rows: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gather rows, and send whether each element is above its row's mean.

    Args:
        rows: [N, F], floating point.
        index: [B], int64.

    Returns:
        Means below [B, 1], distances to those above [B, 1], and codes [B, ceil(F / 8)], uint8.
    """
    gathered = rows.index_select(0, index)
    above = gathered >= gathered.mean(dim=1, keepdim=True)
    num_above = above.sum(dim=1, keepdim=True)
    sum_above = torch.where(above, gathered, 0.0).sum(dim=1, keepdim=True)
    rest = gathered.sum(dim=1, keepdim=True) - sum_above
    low = rest / (gathered.shape[1] - num_above).clamp(min=1)
    return low, sum_above / num_above.clamp(min=1) - low, pack_codes(above.to(torch.uint8), 1)


def pack_codes(codes: Tensor, bits: int) -> Tensor:
    """Put codes next to each other, from bit 0 of byte 0 upwards.

    Args:
        codes: [B, F], uint8, below 2**bits.
        bits: 1, 2, 4 or 8.

    Returns:
        [B, ceil(F * bits / 8)], uint8.
    """
    per_byte = 8 // bits
    padded = torch.nn.functional.pad(codes, (0, -codes.shape[1] % per_byte))
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=codes.device)
    return (padded.view(len(codes), -1, per_byte) << shifts).sum(dim=2, dtype=torch.uint8)


def unpack(low: Tensor, step: Tensor, codes: Tensor, bits: int, num_features: int) -> Tensor:
    """Decode what `pack` or `pack_two_means` returned. Returns [B, F]."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=codes.device)
    each = (codes[:, :, None] >> shifts & (2**bits - 1)).view(len(codes), -1)
    return torch.addcmul(low, each[:, :num_features].to(low.dtype), step)


def select(grad: Tensor, residual: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Error feedback and top-k.

    Args:
        grad: [D], floating point.
        residual: Mutated. [D], floating point.
        k: K.

    Returns:
        Indices [K], int64, and values [K].
    """
    residual.add_(grad)
    index = residual.abs().topk(k, sorted=False).indices
    values = residual[index]
    residual.index_fill_(0, index, 0.0)
    return index, values


def add_selected(out: Tensor, pairs: Sequence[tuple[Tensor, Tensor]], scale: float) -> None:
    """Sum what all ranks selected.

    Args:
        out: Written. [D], floating point.
        pairs: Of each rank: indices [K], int64, and values [K].
        scale: Factor of every value.
    """
    out.zero_()
    for index, values in pairs:
        out.index_add_(0, index, values, alpha=scale)
