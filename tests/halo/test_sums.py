"""Rows that arrive and are added: what decoding them first and adding them one by one gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from horovod_sylvie.halo.codec import Codec, FullPrecision, Half
from horovod_sylvie.halo.format import CodecFormat, Format
from horovod_sylvie.halo.mixed_format import MixedFormat
from horovod_sylvie.halo.packed_codec import Bits, OneBit
from horovod_sylvie.halo.pipeline import Incoming
from horovod_sylvie.halo.plan import Route
from horovod_sylvie.ops.row_sums import RowSums

NUM_ROWS = 12
ROUTE = Route(0, None, torch.arange(NUM_ROWS), (0, NUM_ROWS), (0, NUM_ROWS))
INDEX = torch.tensor([4, 0, 4, 2, 5, 0, 4, 1, 2, 2, 5, 4])
SUMS = RowSums.of(INDEX, 7)
CODECS = [FullPrecision(), Half(), Bits(1), Bits(2), Bits(4), Bits(8), OneBit("centroid")]


def mixed(num_features: int, dtype: torch.dtype) -> MixedFormat:
    bits = torch.tensor([1, 2, 4, 8] * 3, dtype=torch.uint8)
    return MixedFormat(
        ROUTE,
        codecs={each: Bits(each) for each in (1, 2, 4, 8)},
        sent=bits,
        received=bits,
        version=0,
        num_features=num_features,
        dtype=dtype,
    )


def added(format_: Format, messages: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums of what arrives, and those of what is decoded."""
    before = torch.randn(7, like.shape[1]).to(like.dtype)
    decoded = torch.empty_like(like)
    format_.decode(messages, decoded)
    out = before.clone()
    format_.add(messages, SUMS, out)
    # In float32, rounded at the end; torch's own sums of half precision differ among versions
    wide = torch.promote_types(like.dtype, torch.float32)
    expected = before.to(wide).index_add(0, INDEX, decoded.to(wide)).to(like.dtype)
    return out, expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_sums_of_a_codec_are_those_of_decoded_rows(codec: Codec, dtype: torch.dtype) -> None:
    rows = torch.randn(NUM_ROWS, 33).to(dtype)
    format_ = CodecFormat(codec, ROUTE, num_features=33, dtype=dtype)
    out, expected = added(format_, format_.encode(rows, 5)[0], rows)
    assert torch.equal(out, expected)


def test_sums_of_rows_in_double_precision_are_those_of_decoded_rows() -> None:
    rows = torch.randn(NUM_ROWS, 33, dtype=torch.float64)
    format_ = CodecFormat(FullPrecision(), ROUTE, num_features=33, dtype=torch.float64)
    out, expected = added(format_, format_.encode(rows, 5)[0], rows)
    assert torch.equal(out, expected)


def test_sums_of_rows_of_several_widths_are_those_of_decoded_rows() -> None:
    rows = torch.randn(NUM_ROWS, 33)
    format_ = mixed(33, torch.float32)
    out, expected = added(format_, format_.encode(rows, 5)[0], rows)
    assert torch.equal(out, expected)


@pytest.mark.parametrize("codec", [Bits(1), OneBit("centroid")], ids=str)
def test_sums_of_rows_that_are_damaged_raise(codec: Codec) -> None:
    format_ = CodecFormat(codec, ROUTE, num_features=9, dtype=torch.float32)
    messages, _ = format_.encode(torch.randn(NUM_ROWS, 9), 5)
    damaged = messages.clone()
    damaged[-1, 5] = 0x80  # a bit behind the last column
    with pytest.raises(ValueError, match="a corrupt row"):
        format_.add(damaged, SUMS, torch.zeros(7, 9))
    damaged = messages.clone()
    damaged[-1] = torch.tensor([0, 0, 0xC0, 0x7F, 0, 0])  # marked as not finite
    with pytest.raises(ValueError, match="marked as Inf or NaN"):
        format_.add(damaged, SUMS, torch.zeros(7, 9))


def test_incoming_rows_are_finished_once_or_added_once() -> None:
    rows = torch.randn(NUM_ROWS, 9)
    expected = torch.zeros(7, 9).index_add(0, INDEX, rows)
    calls: list[str] = []

    def add(sums: RowSums, out: Tensor) -> None:
        assert sums is SUMS
        calls.append("add")
        out += 1

    there = Incoming(rows)
    kept = Incoming(rows, lambda: calls.append("finish"))
    fused = Incoming(rows, lambda: calls.append("finish"), add)
    for incoming, called in ((there, []), (kept, ["finish"]), (fused, ["add"])):
        calls.clear()
        out = torch.zeros(7, 9)
        incoming.add_to(out, SUMS)
        assert calls == called
        assert incoming.is_ready
        assert torch.equal(out, torch.ones(7, 9) if called == ["add"] else expected)
