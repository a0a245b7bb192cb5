"""Rows added to given rows of a matrix, in a fixed order on every device.

`out[index[i]] += rows[i]` for i = 0, 1, ..., half precision in float32 and rounded at the end. So
does `out.index_add_(0, index, rows)` on a CPU; but on a GPU it adds in the order in which threads
come. Here each row of `out` is summed by one thread, in the order of `rows`, everywhere. Rows may
be packed (`pack_rows.py`), and need no memory then once they are decoded.

The public doors, which check their arguments and choose between the kernel (cpp/, cuda/) and its
twin (`reference.py`).

Shapes: N rows of out, B added rows, T distinct targets, M rows of payload, F features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from . import reference, row_kernels
from .kernel_devices import DTYPE_NAMES, kernel_or_twin
from .pack_rows import packed_row_bytes
from .row_arguments import check_array, check_bits, check_features, check_index, check_matrix
from .row_reports import RowReport, open_report


@dataclass(frozen=True)
class RowSums:
    """Which row is added to which, by target.

    Attributes:
        num_rows: Rows that there are to add to, N.
        targets: The rows that something is added to, each once. [T], int64
        starts: Where each target's rows begin in `order`, and the end. [T + 1], int64
        order: Positions of the added rows, by target and, within one, ascending. [B], int64
    """

    num_rows: int
    targets: Tensor
    starts: Tensor
    order: Tensor

    @staticmethod
    def of(index: Tensor, num_rows: int) -> RowSums:
        """Arrange additions, once for all that use them.

        Args:
            index: The row to which each row is added. [B], int64
            num_rows: Rows that there are to add to, N.

        Returns:
            The sums, on the device of `index`.

        Raises:
            IndexError: `index` has a number outside [0, N).
        """
        outside = torch.nonzero((index < 0) | (index >= num_rows)).flatten()
        if len(outside):
            position = int(outside[0])
            msg = (
                f"RowSums: expected row numbers in [0, {num_rows}) for 'index', got "
                f"{int(index[position])} at position {position}."
            )
            raise IndexError(msg)
        order = torch.argsort(index, stable=True)
        targets, counts = torch.unique_consecutive(index[order], return_counts=True)
        return RowSums(num_rows, targets, torch.cumsum(_after_zero(counts), 0), order)


def add_rows(rows: Tensor, sums: RowSums, *, out: Tensor) -> None:
    """Add rows to those of `out`.

    Args:
        rows: The rows. [B, F], dtype of `out`
        sums: Which is added to which.
        out: Written. [N, F], floating point, contiguous

    Raises:
        TypeError: If an argument is no tensor, or has the wrong dtype.
        ValueError: If an argument has the wrong shape, device or layout.
        RuntimeError: If CUDA refuses to run the kernel.

    Note:
        Mutates `out`, which must not overlap `rows`. Does not go through autograd. Of other dtypes
        than float32, float16 and bfloat16, PyTorch adds.
    """
    name = "add_rows"
    num_features = _check_out(name, sums, out)
    rows = rows.contiguous()
    shape = (len(sums.order), num_features)
    check_array(name, "rows", rows, shape=shape, dtype=out.dtype, device=out.device)
    if len(rows) > 0:
        _add(rows, None, sums, bits=0, out=out)


def add_packed_rows(
    payload: Tensor, index: Tensor | None, sums: RowSums, *, bits: int, out: Tensor
) -> RowReport:
    """Gather packed rows, decode them, and add them to those of `out`.

    Args:
        payload: Packed rows, as for `unpack_rows`. [M, packed_row_bytes(F, bits)], uint8,
            contiguous
        index: Which rows, in which order; None for all. [B], int64
        sums: Which of these is added to which.
        bits: Bits per element: 1, 2, 4 or 8.
        out: Written. [N, F], float32, float16 or bfloat16, contiguous. Rows are rounded to its
            dtype, then added.

    Returns:
        How many rows are not finite, and the first. They were added as NaN.

    Raises:
        TypeError: If an argument is no tensor, or has the wrong dtype.
        ValueError: If an argument has the wrong shape, device, layout or range; or if a chosen row
            is one that `pack_rows` never writes: the others were added.
        IndexError: If `index` has a number outside [0, M); nothing was added. On a GPU it is the
            report that raises this and the error of a corrupt row, when it is read.
        RuntimeError: If CUDA refuses to run the kernel.

    Note:
        Mutates `out`, which must not overlap the others. Does not go through autograd.
    """
    name = "add_packed_rows"
    check_bits(name, bits)
    check_features(name, "out", out)
    num_features = _check_out(name, sums, out)
    check_matrix(name, "payload", payload)
    num_packed = payload.shape[0]
    shape = (num_packed, packed_row_bytes(num_features, bits))
    check_array(name, "payload", payload, shape=shape, dtype=torch.uint8, device=out.device)
    num_added = check_index(name, index, num_packed, out.device)
    if num_added != len(sums.order):
        msg = (
            f"{name}: expected {len(sums.order)} rows for 'index', as 'sums' adds, got {num_added}."
        )
        raise ValueError(msg)
    if num_added > 0:
        numbers = _add(payload, index, sums, bits=bits, out=out)
    else:
        numbers = open_report(out.device)
    report = RowReport(name, "payload", num_packed, index, bits, numbers)
    if out.device.type == "cpu":  # nothing to wait for
        report.check()
    return report


def _add(rows: Tensor, index: Tensor | None, sums: RowSums, *, bits: int, out: Tensor) -> Tensor:
    native = row_kernels.native_for(out.device) if out.dtype in DTYPE_NAMES else None
    add = kernel_or_twin("add_rows", native, row_kernels, reference)
    numbers: Tensor = add(rows, index, sums.order, sums.targets, sums.starts, bits=bits, out=out)
    return numbers


def _check_out(function: str, sums: RowSums, out: Tensor) -> int:
    """Check the sums' matrix, and return its number of features."""
    check_matrix(function, "out", out)
    num_features = out.shape[1]
    shape = (sums.num_rows, num_features)
    check_array(function, "out", out, shape=shape, dtype=out.dtype, device=sums.targets.device)
    return num_features


def _after_zero(counts: Tensor) -> Tensor:
    return torch.cat((counts.new_zeros(1), counts))
