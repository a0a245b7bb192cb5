"""Rows that packing has to get right, and the calls that the tests of the row ops compare."""

from __future__ import annotations

import torch
from torch import Tensor

from horovod_sylvie.ops import reference, row_kernels
from horovod_sylvie.ops.native import native_or_none
from horovod_sylvie.ops.pack_rows import RowCode, packed_row_bytes

WIDTHS = (1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 602, 1025)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
CODES: tuple[tuple[int, RowCode], ...] = (
    (1, "minmax"),
    (1, "centroid"),
    (2, "minmax"),
    (4, "minmax"),
    (8, "minmax"),
)
KEY = 0xFEDCBA9876543210


def instruction_sets() -> list[str]:
    """Return those that this machine can run; none without the native library."""
    native = native_or_none()
    if native is None:
        return []
    known = ["baseline", "avx2", "avx512"]
    return known[: known.index(native.instruction_set()) + 1]


def peculiar_rows(num_features: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Make one row of each kind that has its own rule somewhere. [22, F], dtype."""
    normal = torch.randn(22, num_features)
    sign = torch.where(normal[0] > 0, 1.0, -1.0)
    rows = [
        normal[0],
        torch.zeros(num_features),
        -torch.zeros(num_features),
        0.0 * sign,  # +0 and -0: equal, so one literal
        torch.full((num_features,), 1.2345),
        torch.full((num_features,), 1e-45),  # the smallest denormal
        normal[1] * 1e-42,  # a range below the smallest normal fp32
        normal[2] * 1e-38,
        normal[3] * 2.0**-64,  # around the range from which the scale changes
        normal[4] * 2.0**-65,
        normal[5] * 1e30,
        3.3e38 * sign,  # max - min overflows
        torch.full((num_features,), -3.3e38) - 1e37 * normal[6].clamp(0, 1),
        2.9e38 + 4e37 * normal[7].clamp(0, 1),
        1.0 + 2.0**-23 * (normal[8] > 0),  # neighbours in fp32
        normal[9].abs() + 100.0,
        _with_first(normal[10], 3e38),
        _with_first(normal[11], float("inf")),
        _with_first(normal[12].flip(0), float("-inf")).flip(0),
        _with_first(normal[13], float("nan")),
        torch.full((num_features,), float("nan")),
        torch.full((num_features,), float("-inf")),
    ]
    return torch.stack(rows).to(dtype)


def _with_first(row: Tensor, value: float) -> Tensor:
    row = row.clone()
    row[0] = value
    return row


def pack_twin(
    rows: Tensor, index: Tensor | None, bits: int, code: RowCode
) -> tuple[Tensor, list[int]]:
    """Pack with the plain-PyTorch twin; return bytes and report."""
    out = _bytes_for(rows, index, bits)
    report = reference.pack_rows(rows, index, bits=bits, code=code, key=KEY, out=out)
    return out, report.tolist()


def pack_kernel(
    rows: Tensor, index: Tensor | None, bits: int, code: RowCode, instruction_set: str
) -> tuple[Tensor, list[int]]:
    """Pack with a kernel; return bytes and report."""
    out = _bytes_for(rows, index, bits)
    report = row_kernels.pack_rows(
        native_or_none(),
        rows,
        index,
        bits=bits,
        code=code,
        key=KEY,
        out=out,
        instruction_set=instruction_set,
    )
    return out, report.tolist()


def _bytes_for(rows: Tensor, index: Tensor | None, bits: int) -> Tensor:
    """Return bytes that are not zero, so that what is not written shows."""
    num_packed = rows.shape[0] if index is None else index.shape[0]
    width = packed_row_bytes(rows.shape[1], bits)
    return torch.full((num_packed, width), 0xA5, dtype=torch.uint8)


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Compare the bits of floats, so that NaN equals NaN, and -0 does not equal 0."""
    word = torch.int32 if left.dtype == torch.float32 else torch.int16
    return left.dtype == right.dtype and torch.equal(left.view(word), right.view(word))
