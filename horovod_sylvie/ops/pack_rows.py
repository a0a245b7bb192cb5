"""Rows to bytes and back: gather, quantise and pack, and gather and decode.

The public doors, which check their arguments and choose between the kernel (cpp/, cuda/) and its
twin (`reference.py`). No ranks and no state: who gets which row is the caller's business.

Wire format of one row of F features, little-endian, L = 2**bits - 1:

| offset | bytes              | meaning                                                            |
|--------|--------------------|--------------------------------------------------------------------|
| 0      | 2                  | lo, bf16                                                           |
| 2      | 2                  | range, bf16, >= 0; with its sign bit set, the row is one literal   |
| 4      | ceil(F * bits / 8) | codes, `bits` of each column, from bit 0 of byte 0 upwards         |

nbytes = 4 + ceil(F * bits / 8); unused bits of the last byte are zero. Column c has bits c * bits
to (c + 1) * bits, and decodes to lo + code * (range / L). A row whose elements are all equal is
literal, and exact: lo holds the upper 16 bits of the fp32 pattern of its first element, range the
lower 15 and the sign bit, bit 0 of the first code byte bit 15, and the other code bits are zero. A
row that has an Inf or a NaN, or a spread that bf16 cannot hold, is lo = 0, range = 0x7FC0, codes
zero; it is counted, and decodes to NaN.

The codes: "minmax" is unbiased stochastic rounding between the row's minimum and maximum (Zhang
et al., Boosting Distributed Full-graph GNN Training with Asynchronous One-bit Communication,
2023); "centroid" sends, in one bit and without randomness, the mean of the elements below the
row mean and of those above. Their arithmetic is written down in cpp/pack_rows.hpp.

Shapes: N rows, B packed rows, M rows of payload, n unpacked rows, F features.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from . import reference, row_kernels
from .kernel_devices import kernel_or_twin
from .row_arguments import (
    check_array,
    check_bits,
    check_code,
    check_features,
    check_index,
    check_key,
    check_matrix,
    check_num_features,
)
from .row_reports import RowReport, open_report

RowCode = Literal["minmax", "centroid"]


def packed_row_bytes(num_features: int, bits: int) -> int:
    """Return the bytes of one packed row.

    Args:
        num_features: Number of features F, at least 1.
        bits: Bits per element: 1, 2, 4 or 8.

    Returns:
        4 + ceil(F * bits / 8).

    Raises:
        ValueError: If an argument is out of its range.
    """
    check_bits("packed_row_bytes", bits)
    check_num_features("packed_row_bytes", num_features)
    return reference.HEADER_BYTES + (num_features * bits + 7) // 8


def pack_rows(
    rows: Tensor,
    index: Tensor | None,
    *,
    bits: int,
    code: RowCode = "minmax",
    key: int,
    out: Tensor,
) -> RowReport:
    """Gather rows, quantise them and pack them into bytes.

    Args:
        rows: Rows to choose from, of any strides. [N, F], float32, float16 or bfloat16.
        index: Which rows, in which order; None for all. [B], int64.
        bits: Bits per element: 1, 2, 4 or 8; 1 for the centroid code.
        code: "minmax" (unbiased) or "centroid" (smaller error, biased).
        key: Key of the random numbers, in [0, 2**64). A row's bytes depend on it, on the row's
            number in `rows` and on its elements only. Unused by the centroid code.
        out: Written. [B, packed_row_bytes(F, bits)], uint8, contiguous.

    Returns:
        How many rows are not finite, and the first.

    Raises:
        TypeError: If an argument is no tensor, or has the wrong dtype.
        ValueError: If an argument has the wrong shape, device, layout or range.
        IndexError: If `index` has a number outside [0, N); `out` is not written then. On a GPU it
            is the report that raises it, when it is read.
        RuntimeError: If CUDA refuses to run the kernel.

    Note:
        Mutates `out`, which must not overlap the others. Does not go through autograd. Uses
        `torch.get_num_threads()` threads, or the current stream, for which it does not wait; the
        bytes are the same for any number and on any device. Rows whose
        features are not next to each other in memory cost a copy of all rows.
    """
    name = "pack_rows"
    check_features(name, "rows", rows)
    check_bits(name, bits)
    check_code(name, code, bits)
    check_key(name, key)
    num_rows, num_features = rows.shape
    num_packed = check_index(name, index, num_rows, rows.device)
    shape = (num_packed, packed_row_bytes(num_features, bits))
    check_array(name, "out", out, shape=shape, dtype=torch.uint8, device=rows.device)
    pack = kernel_or_twin(name, row_kernels.native_for(rows.device), row_kernels, reference)
    if num_packed > 0:
        numbers = pack(rows, index, bits=bits, code=code, key=key, out=out)
    else:
        numbers = open_report(rows.device)
    return _report(name, "rows", num_rows, index, bits, numbers)


def unpack_rows(
    payload: Tensor,
    index: Tensor | None,
    *,
    num_features: int,
    bits: int,
    out: Tensor,
) -> RowReport:
    """Gather packed rows and decode them.

    Args:
        payload: Packed rows. Their bytes are not trusted: nothing outside the tensors is touched,
            whatever they are. [M, packed_row_bytes(F, bits)], uint8, contiguous.
        index: Which rows, in which order; None for all. [n], int64.
        num_features: Number of features F.
        bits: Bits per element: 1, 2, 4 or 8.
        out: Written; may be a slice of a larger tensor. [n, F], float32, float16 or bfloat16,
            contiguous. Values are rounded to its dtype to nearest.

    Returns:
        How many rows are not finite, and the first. They are NaN in `out`.

    Raises:
        TypeError: If an argument is no tensor, or has the wrong dtype.
        ValueError: If an argument has the wrong shape, device, layout or range; or if a chosen row
            is one that `pack_rows` never writes, in which case it is unchanged in `out` and the
            others are decoded.
        IndexError: If `index` has a number outside [0, M); `out` is not written then. On a GPU it
            is the report that raises this and the error of a corrupt row, when it is read.
        RuntimeError: If CUDA refuses to run the kernel.

    Note:
        Mutates `out`, which must not overlap the others. Does not go through autograd. Uses
        `torch.get_num_threads()` threads, or the current stream, for which it does not wait; the
        values are the same for any number and on any device.
    """
    name = "unpack_rows"
    check_bits(name, bits)
    check_num_features(name, num_features)
    check_matrix(name, "payload", payload)
    num_packed = payload.shape[0]
    shape = (num_packed, packed_row_bytes(num_features, bits))
    check_array(name, "payload", payload, shape=shape, dtype=torch.uint8, device=payload.device)
    num_unpacked = check_index(name, index, num_packed, payload.device)
    check_features(name, "out", out)
    check_array(
        name,
        "out",
        out,
        shape=(num_unpacked, num_features),
        dtype=out.dtype,
        device=payload.device,
    )
    unpack = kernel_or_twin(name, row_kernels.native_for(payload.device), row_kernels, reference)
    if num_unpacked > 0:
        numbers = unpack(payload, index, num_features=num_features, bits=bits, out=out)
    else:
        numbers = open_report(payload.device)
    return _report(name, "payload", num_packed, index, bits, numbers)


def _report(
    function: str, array: str, num_rows: int, index: Tensor | None, bits: int, numbers: Tensor
) -> RowReport:
    report = RowReport(function, array, num_rows, index, bits, numbers)
    if numbers.device.type == "cpu":  # nothing to wait for
        report.check()
    return report
