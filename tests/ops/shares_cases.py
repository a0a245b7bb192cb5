"""Shares that selecting has to get right, and the calls that the tests of the ops compare."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from horovod_sylvie.ops import shares_reference, top_k_kernels
from horovod_sylvie.ops.native import native_or_none
from horovod_sylvie.ops.selection import Selection
from horovod_sylvie.ops.shares import share_elements
from horovod_sylvie.ops.top_k import section_bytes

OFFSET = 16

# Elements and shares: less than a chunk, whole chunks, a rest, more shares than chunks, blocks
CASES = (
    (1, 1),
    (7, 3),
    (4096, 2),
    (4097, 2),
    (8192, 2),
    (3 * 4096 + 5, 5),
    (20_000, 3),
    (150_000, 1),
    (150_001, 2),
    (300_000, 4),
)


class Outcome(NamedTuple):
    """Everything that a selection writes and returns."""

    report: tuple[list[int], int]
    rows: Tensor
    accumulated: Tensor


def ks_of(num_elements: int, num_shares: int, density: float) -> list[int]:
    """Return how many elements of each share are selected. P entries"""
    sizes = [share_elements(num_elements, num_shares, share) for share in range(num_shares)]
    return [min(size, max(1, math.ceil(density * size))) for size in sizes]


def blank_rows(num_elements: int, ks: list[int], value_dtype: torch.dtype, fill: int) -> Tensor:
    """Make rows of which only the sections may be written. [P, B]"""
    first = share_elements(num_elements, len(ks), 0)
    nbytes = OFFSET + section_bytes(first, max(ks), value_dtype) + 8
    return torch.full((len(ks), nbytes), fill, dtype=torch.uint8)


def select_twin(
    grad: Tensor | None,
    residual: Tensor,
    ks: list[int],
    value_dtype: torch.dtype = torch.float32,
    scale: float = 1.0,
) -> Outcome:
    """Select with the plain-PyTorch twin."""
    rows = blank_rows(residual.numel(), ks, value_dtype, 0xA5)
    accumulated = torch.full_like(residual, 7.0)
    report = shares_reference.select_shares(
        grad,
        residual,
        ks=ks,
        scale=scale,
        value_dtype=value_dtype,
        hints=[0] * len(ks),
        accumulated=accumulated,
        rows=rows,
        offset=OFFSET,
    )
    return Outcome(report, rows, accumulated)


def select_kernel(
    grad: Tensor | None,
    residual: Tensor,
    ks: list[int],
    value_dtype: torch.dtype = torch.float32,
    scale: float = 1.0,
    *,
    hints: list[int] | None = None,
    in_place: bool = False,
    native: Any = None,
    **options: Any,
) -> Outcome:
    """Select with a kernel."""
    residual = residual.clone()
    rows = blank_rows(residual.numel(), ks, value_dtype, 0xA5)
    accumulated = residual if in_place else torch.full_like(residual, 9.0)
    hints = [0] * len(ks) if hints is None else hints
    selection = Selection(grad, residual, ks, scale, value_dtype, hints, accumulated, rows, OFFSET)
    report = top_k_kernels.select(native or native_or_none(), [selection], **options)
    thresholds = [*report[:, 0].tolist(), *[0] * (len(ks) - len(report))]
    return Outcome((thresholds, int(report[:, 1].sum())), rows, accumulated)


def same(left: Outcome, right: Outcome) -> bool:
    """Compare bit for bit, what lies around the sections included."""
    return (
        left.report == right.report
        and torch.equal(left.rows, right.rows)
        and torch.equal(left.accumulated.view(torch.int32), right.accumulated.view(torch.int32))
    )
