"""The slow twins: what the kernels do, in plain PyTorch, on any device, byte for byte.

The oracle of the tests, and what runs where there is no kernel. The wire format is the table in
`pack_rows.py`. No argument is checked here.

Bits are equal only because every step is one rounded fp32 operation on tensors of one shape: a
division by a Python number may become a multiplication by its reciprocal, a sum a tree.

Shapes: N rows, B packed rows, M rows of payload, n unpacked rows, F features, b rows of a chunk.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from .counter_rng import random_half_words
from .float_bits import as_bits, bf16_down, bf16_nearest, bf16_up, from_bf16
from .row_reports import open_report

HEADER_BYTES: Final = 4
_NONFINITE_RANGE: Final = 0x7FC0
_LITERAL_FLAG: Final = 0x8000
_LANES: Final = 16
_CHUNK_ELEMENTS: Final = 1 << 21  # bounds the temporaries to some 100 MB


class PackedChunk(NamedTuple):
    """Rows before they become bytes.

    Attributes:
        lo: Header field, the low 16 bits. [b], int64.
        span: Header field "range", the low 16 bits. [b], int64.
        codes: Code of each column. [b, F], int64.
    """

    lo: Tensor
    span: Tensor
    codes: Tensor


@torch.no_grad()
def pack_rows(
    rows: Tensor,
    index: Tensor | None,
    *,
    bits: int,
    code: str,
    key: int,
    out: Tensor,
) -> Tensor:
    """Do what `row_kernels.pack_rows` does, and return what it returns."""
    report = open_report(rows.device)
    nonfinite: list[Tensor] = []
    index = torch.arange(rows.shape[0], device=rows.device) if index is None else index
    outside = (index < 0) | (index >= rows.shape[0])
    if outside.any():
        report[0] = _first(outside)
        return report
    step = max(1, _CHUNK_ELEMENTS // rows.shape[1])
    for start in range(0, index.shape[0], step):
        row_ids = index[start : start + step]
        x = rows[row_ids].to(torch.float32)  # [b, F]
        chunk = _centroid_codes(x) if code == "centroid" else _minmax_codes(x, row_ids, bits, key)
        chunk = _with_literals(x, chunk)
        header = torch.stack((chunk.lo, chunk.lo >> 8, chunk.span, chunk.span >> 8), dim=1)
        packed = torch.cat((header & 0xFF, _to_bytes(chunk.codes, bits)), dim=1)
        out[start : start + step] = packed.to(torch.uint8)
        nonfinite.append(chunk.span == _NONFINITE_RANGE)
    _note_nonfinite(report, nonfinite)
    return report


def _minmax_codes(x: Tensor, row_ids: Tensor, bits: int, key: int) -> PackedChunk:
    """Round each element up or down at random, unbiased. x: [b, F], float32."""
    levels = 2**bits - 1
    lo = bf16_down(x.amin(dim=1) + 0.0)
    span = bf16_up(x.amax(dim=1) - from_bf16(lo))
    coded = _is_coded(lo, span, levels)
    width = torch.where(coded, from_bf16(span), 1.0)
    pre = torch.where(width < 2.0**-64, 2.0**64, 1.0)
    scale = torch.full_like(width, levels * 65536) / (width * pre)
    fixed = (x - from_bf16(lo)[:, None]) * pre[:, None] * scale[:, None]  # [b, F], codes * 2**16
    fixed = torch.where(coded[:, None], fixed, 0.0).round().to(torch.int64)
    random = random_half_words(row_ids, x.shape[1], key)
    codes = torch.where(coded[:, None], (fixed + random >> 16).clamp(max=levels), 0)
    return _marked(coded, lo, span, codes)


def _centroid_codes(x: Tensor) -> PackedChunk:
    """Send the mean of the elements below the row mean, and of the others. x: [b, F], float32."""
    count = torch.full_like(x[:, 0], x.shape[1])
    threshold = _lane_sum(x) / count
    above = x >= threshold[:, None]  # [b, F]
    num_above = above.sum(dim=1)
    num_below = x.shape[1] - num_above
    sum_below = _lane_sum(torch.where(above, 0.0, x))
    sum_above = _lane_sum(torch.where(above, x, 0.0))
    mean_below = torch.where(num_below > 0, sum_below / num_below.to(x.dtype), threshold)
    mean_above = torch.where(num_above > 0, sum_above / num_above.to(x.dtype), threshold)
    lo = bf16_nearest(mean_below)
    span = bf16_nearest((mean_above - from_bf16(lo)).clamp(min=0.0))
    coded = _is_coded(lo, span, 1) & threshold.isfinite() & mean_above.isfinite()
    return _marked(coded, lo, span, torch.where(coded[:, None], above, False).to(torch.int64))


def _marked(coded: Tensor, lo: Tensor, span: Tensor, codes: Tensor) -> PackedChunk:
    """Give the rows that cannot be coded the header that says so."""
    return PackedChunk(torch.where(coded, lo, 0), torch.where(coded, span, _NONFINITE_RANGE), codes)


def _with_literals(x: Tensor, chunk: PackedChunk) -> PackedChunk:
    """Replace rows whose elements are all equal by their first element. x: [b, F], float32."""
    constant = (x.amin(dim=1) == x.amax(dim=1)) & x[:, 0].isfinite()  # [b]
    pattern = as_bits(x[:, 0])
    literal_codes = torch.zeros_like(chunk.codes)
    # bit 0 of the first byte, which is column 0's lowest
    literal_codes[:, 0] = pattern >> 15 & 1
    return PackedChunk(
        torch.where(constant, pattern >> 16, chunk.lo),
        torch.where(constant, _LITERAL_FLAG | pattern & 0x7FFF, chunk.span),
        torch.where(constant[:, None], literal_codes, chunk.codes),
    )


@torch.no_grad()
def unpack_rows(
    payload: Tensor,
    index: Tensor | None,
    *,
    num_features: int,
    bits: int,
    out: Tensor,
) -> Tensor:
    """Do what `row_kernels.unpack_rows` does, and return what it returns."""
    report = open_report(payload.device)
    index = torch.arange(payload.shape[0], device=payload.device) if index is None else index
    outside = (index < 0) | (index >= payload.shape[0])
    if outside.any():
        report[0] = _first(outside)
        return report
    all_corrupt: list[Tensor] = []
    all_nonfinite: list[Tensor] = []
    step = max(1, _CHUNK_ELEMENTS // num_features)
    for start in range(0, index.shape[0], step):
        row_ids = index[start : start + step]
        values, corrupt, nonfinite = _decode(payload[row_ids].to(torch.int64), num_features, bits)
        target = out[start : start + step]
        target[~corrupt] = values[~corrupt].to(out.dtype)
        target[nonfinite] = float("nan")
        all_corrupt.append(corrupt)
        all_nonfinite.append(nonfinite)
    if all_corrupt:
        report[1] = _first(torch.cat(all_corrupt))
    _note_nonfinite(report, all_nonfinite)
    return report


@torch.no_grad()
def add_rows(
    rows: Tensor,
    index: Tensor | None,
    order: Tensor,
    targets: Tensor,
    starts: Tensor,
    *,
    bits: int,
    out: Tensor,
) -> Tensor:
    """Do what `row_kernels.add_rows` does, and return what it returns."""
    report = open_report(rows.device)
    skipped = torch.zeros(len(order), dtype=torch.bool, device=rows.device)
    if bits > 0:
        decoded = torch.full((len(order), out.shape[1]), float("inf"), device=rows.device)
        report = unpack_rows(rows, index, num_features=out.shape[1], bits=bits, out=decoded)
        if report[0] >= 0:
            return report
        skipped = decoded.isinf().all(dim=1)  # corrupt, and left alone: nothing decodes to that
        rows = decoded.to(out.dtype)
    sums = out[targets].to(torch.promote_types(out.dtype, torch.float32))  # [T, F]
    counts = starts.diff()
    for turn in range(int(counts.max())):  # each target once in a turn
        summed = torch.nonzero(counts > turn).flatten()
        positions = order[starts[summed] + turn]
        keeps = ~skipped[positions]
        sums[summed[keeps]] += rows[positions[keeps]].to(sums.dtype)
    out[targets] = sums.to(out.dtype)
    return report


def _first(marks: Tensor) -> int:
    """Return the first position that is marked, or -1. marks: bool."""
    positions = marks.nonzero()
    return int(positions[0]) if len(positions) else -1


def _note_nonfinite(report: Tensor, chunks: list[Tensor]) -> None:
    if chunks:
        marks = torch.cat(chunks)
        report[2] = _first(marks)
        report[3] = -1 - marks.sum()


def _decode(payload: Tensor, num_features: int, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Decode rows of bytes [b, bytes], int64.

    Returns:
        Values [b, F], float32, and which rows are corrupt and which are non-finite [b], bool.
    """
    levels = 2**bits - 1
    lo = payload[:, 0] | payload[:, 1] << 8
    span = payload[:, 2] | payload[:, 3] << 8
    code_bytes = payload[:, HEADER_BYTES:]
    codes = _from_bytes(code_bytes, bits)  # [b, whole bytes of codes]
    padded = (codes[:, num_features:] != 0).any(dim=1)
    step = from_bf16(span) / torch.full_like(from_bf16(span), levels)
    values = from_bf16(lo)[:, None] + codes[:, :num_features].to(torch.float32) * step[:, None]

    is_literal = (span & _LITERAL_FLAG) != 0
    pattern = lo << 16 | (code_bytes[:, 0] & 1) << 15 | span & 0x7FFF
    literal = pattern.to(torch.int32).view(torch.float32)
    clean = (code_bytes[:, 0] <= 1) & (code_bytes[:, 1:] == 0).all(dim=1)
    literal_ok = is_literal & literal.isfinite() & clean
    nonfinite = (span == _NONFINITE_RANGE) & (lo == 0) & (code_bytes == 0).all(dim=1)
    coded = ~is_literal & _is_coded(lo, span, levels) & ~padded
    values = torch.where(literal_ok[:, None], literal[:, None], values)
    return values, ~(coded | literal_ok | nonfinite), nonfinite


def _is_coded(lo: Tensor, span: Tensor, levels: int) -> Tensor:
    """Return where a header decodes to finite values only. [b], bool."""
    factor = torch.full_like(from_bf16(span), levels)
    highest = from_bf16(lo) + factor * (from_bf16(span) / factor)
    return from_bf16(lo).isfinite() & from_bf16(span).isfinite() & highest.isfinite()


def _lane_sum(x: Tensor) -> Tensor:
    """Sum rows in 16 lanes, in the order that the kernels use. [b, F] -> [b], float32."""
    sums = x.new_zeros(x.shape[0], _LANES)
    for start in range(0, x.shape[1], _LANES):
        columns = x[:, start : start + _LANES]
        sums[:, : columns.shape[1]] += columns
    for half in (8, 4, 2, 1):
        sums = sums[:, :half] + sums[:, half:]
    return sums[:, 0]


def _to_bytes(codes: Tensor, bits: int) -> Tensor:
    """Pack codes [b, F], int64, into [b, ceil(F * bits / 8)] bytes, as int64."""
    per_byte = 8 // bits
    padded = torch.nn.functional.pad(codes, (0, -codes.shape[1] % per_byte))
    shifts = torch.arange(0, 8, bits, device=codes.device)
    return (padded.view(codes.shape[0], -1, per_byte) << shifts).sum(dim=2)


def _from_bytes(code_bytes: Tensor, bits: int) -> Tensor:
    """Undo `_to_bytes`, the padding included."""
    shifts = torch.arange(0, 8, bits, device=code_bytes.device)
    codes: Tensor = code_bytes[:, :, None] >> shifts & 2**bits - 1
    return codes.flatten(1)
