"""The calls of the native row kernels, on arguments that are checked: tensors to addresses.

Shapes: N rows, B packed rows, M rows of payload, n unpacked rows, F features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .kernel_devices import DTYPE_NAMES, made_current, native_on, stream_of
from .row_reports import open_report


def native_for(device: torch.device) -> Any | None:
    """Return the library that has the kernels for a device, or None, logged once, without one."""
    return native_on(device, "packing rows on")


def pack_rows(
    native: Any,
    rows: Tensor,
    index: Tensor | None,
    *,
    bits: int,
    code: str,
    key: int,
    out: Tensor,
    stream: int | None = None,
    instruction_set: str | None = None,
) -> Tensor:
    """Call `_native.pack_rows`.

    Args:
        native: The native library.
        rows: [N, F], float32, float16 or bfloat16.
        index: [B], int64, or None.
        bits: 1, 2, 4 or 8.
        code: "minmax" or "centroid".
        key: In [0, 2**64).
        out: Written. [B, packed_row_bytes(F, bits)], uint8.
        stream: Where to run; None for the current stream of a GPU, and for the CPU. For tests.
        instruction_set: Forces one; None for the best. For tests and benchmarks.

    Returns:
        The numbers of a `RowReport`. [4], int64
    """
    if rows.stride(1) != 1:
        rows = rows.contiguous()
    index = None if index is None else index.contiguous()
    return _call(
        native.pack_rows,
        rows.device,
        stream,
        rows=rows.data_ptr(),
        dtype=DTYPE_NAMES[rows.dtype],
        num_rows=rows.shape[0],
        num_features=rows.shape[1],
        row_stride=rows.stride(0),
        index=0 if index is None else index.data_ptr(),
        num_packed=out.shape[0],
        bits=bits,
        code=code,
        key=key,
        out=out.data_ptr(),
        out_bytes=out.nbytes,
        instruction_set=instruction_set,
    )


def unpack_rows(
    native: Any,
    payload: Tensor,
    index: Tensor | None,
    *,
    num_features: int,
    bits: int,
    out: Tensor,
    stream: int | None = None,
    instruction_set: str | None = None,
) -> Tensor:
    """Call `_native.unpack_rows`.

    Args:
        native: The native library.
        payload: [M, packed_row_bytes(F, bits)], uint8.
        index: [n], int64, or None.
        num_features: Number of features F.
        bits: 1, 2, 4 or 8.
        out: Written. [n, F], float32, float16 or bfloat16.
        stream: Where to run; None for the current stream of a GPU, and for the CPU. For tests.
        instruction_set: Forces one; None for the best. For tests and benchmarks.

    Returns:
        The numbers of a `RowReport`. [4], int64
    """
    index = None if index is None else index.contiguous()
    return _call(
        native.unpack_rows,
        payload.device,
        stream,
        payload=payload.data_ptr(),
        payload_bytes=payload.nbytes,
        num_packed=payload.shape[0],
        num_features=num_features,
        bits=bits,
        index=0 if index is None else index.data_ptr(),
        num_unpacked=out.shape[0],
        out=out.data_ptr(),
        dtype=DTYPE_NAMES[out.dtype],
        instruction_set=instruction_set,
    )


def add_rows(
    native: Any,
    rows: Tensor,
    index: Tensor | None,
    order: Tensor,
    targets: Tensor,
    starts: Tensor,
    *,
    bits: int,
    out: Tensor,
    stream: int | None = None,
    instruction_set: str | None = None,
) -> Tensor:
    """Call `_native.add_rows`.

    Args:
        native: The native library.
        rows: [M, packed_row_bytes(F, bits)], uint8; where `bits` is 0, [M, F], dtype of `out`.
        index: Which of them. [B], int64, or None.
        order: See `RowSums`. [B], int64
        targets: See `RowSums`. [T], int64
        starts: See `RowSums`. [T + 1], int64
        bits: 1, 2, 4 or 8; 0 for plain rows.
        out: Written. [N, F], float32, float16 or bfloat16.
        stream: Where to run; None for the current stream of a GPU, and for the CPU. For tests.
        instruction_set: Forces one; None for the best. For tests and benchmarks.

    Returns:
        The numbers of a `RowReport`. [4], int64
    """
    index = None if index is None else index.contiguous()
    return _call(
        native.add_rows,
        out.device,
        stream,
        rows=rows.data_ptr(),
        rows_bytes=rows.nbytes,
        num_rows=rows.shape[0],
        num_features=out.shape[1],
        bits=bits,
        index=0 if index is None else index.data_ptr(),
        order=order.data_ptr(),
        num_added=len(order),
        targets=targets.data_ptr(),
        starts=starts.data_ptr(),
        num_targets=len(targets),
        out=out.data_ptr(),
        num_out=out.shape[0],
        dtype=DTYPE_NAMES[out.dtype],
        instruction_set=instruction_set,
    )


def _call(
    function: Callable[..., None], device: torch.device, stream: int | None, **arguments: Any
) -> Tensor:
    """Call a function of the library, and return the numbers of its report."""
    report = open_report(device)
    with made_current(device):
        function(
            report=report.data_ptr(),
            stream=stream_of(device) if stream is None else stream,
            num_threads=torch.get_num_threads(),
            **arguments,
        )
    return report
