"""Rows of several widths in one exchange: each as by its own codec, and the bytes of the table."""

from __future__ import annotations

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from horovod_sylvie.halo.codec import Codec, FullPrecision
from horovod_sylvie.halo.format import CodecFormat
from horovod_sylvie.halo.message import HEADER_BYTES
from horovod_sylvie.halo.mixed_format import MixedFormat
from horovod_sylvie.halo.packed_codec import Bits, OneBit
from horovod_sylvie.halo.plan import Route
from horovod_sylvie.ops.pack_rows import pack_rows, packed_row_bytes

WIDTHS = (1, 2, 4, 8)
CODECS: dict[int, Codec] = {1: OneBit(), 2: Bits(2), 4: Bits(4), 8: Bits(8)}
FEATURES = [1, 7, 8, 9, 33]


def as_bits(widths: list[int]) -> Tensor:
    return torch.tensor(widths, dtype=torch.uint8)


def random_rows(*shape: int, seed: int = 0) -> Tensor:
    """Draw in a thread without touching the generator that threads share."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator)


def mirrored(route: Route, sent: Tensor, num_features: int, **options) -> MixedFormat:
    """Make the format of a rank that gets back the very messages that it sends."""
    defaults = {"codecs": CODECS, "version": 0, "dtype": torch.float32}
    return MixedFormat(
        route,
        sent=sent,
        received=sent[route.expand],
        num_features=num_features,
        **(defaults | options),
    )


def round_trip(rows: Tensor, widths: list[int], key: int = 0, **options) -> Tensor:
    """Send all rows to one other rank and decode them. [N, F]."""
    splits = (0, len(rows))
    route = Route(0, None, torch.arange(len(rows)), splits, splits)
    form = mirrored(route, as_bits(widths), rows.shape[1], dtype=rows.dtype, **options)
    messages, nonfinite = form.encode(rows, key)
    assert not nonfinite
    out = torch.empty_like(rows)
    form.decode(messages, out)
    return out


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[Route, Tensor, int]:
    """Draw a route that ends where it starts, bits for its distinct rows, and the rows behind."""
    size = draw(st.integers(1, 5))
    rank = draw(st.integers(0, size - 1))
    splits = draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))
    splits[rank] = 0
    num_rows = 9
    if draw(st.booleans()):
        num_rows = sum(splits)
        route = Route(rank, None, torch.arange(num_rows), tuple(splits), tuple(splits))
    else:
        picked = draw(st.lists(st.integers(0, 8), min_size=sum(splits), max_size=sum(splits)))
        unique, expand = torch.unique(torch.tensor(picked, dtype=torch.int64), return_inverse=True)
        route = Route(rank, unique, expand, tuple(splits), tuple(splits))
    some = st.lists(st.sampled_from(WIDTHS), min_size=route.num_unique, max_size=route.num_unique)
    return route, as_bits(draw(some)), num_rows


def oracle_messages(route: Route, rows: Tensor, sent: Tensor, key: int) -> list[int]:
    """Walk over peers, widths and rows, and write down the bytes of the table."""
    packed = {}
    for bits in WIDTHS:
        width = packed_row_bytes(rows.shape[1], bits)
        packed[bits] = torch.empty(route.num_unique, width, dtype=torch.uint8)
        pack_rows(rows, route.unique_rows, bits=bits, key=key, out=packed[bits])
    written: list[int] = []
    start = 0
    for peer, num_rows in enumerate(route.send_splits):
        if peer == route.rank:
            continue
        written += [0] * HEADER_BYTES
        leaving = route.expand[start : start + num_rows].tolist()
        start += num_rows
        for bits in WIDTHS:
            for row in leaving:
                if sent[row] == bits:
                    written += packed[bits][row].tolist()
    return written


@given(mixture=mixtures(), num_features=st.sampled_from(FEATURES))
@settings(max_examples=150, deadline=None)
def test_bytes_are_those_of_the_table(mixture, num_features: int) -> None:
    route, sent, num_rows = mixture
    rows = random_rows(num_rows, num_features)
    form = mirrored(route, sent, num_features)
    messages, nonfinite = form.encode(rows, key=3)
    assert (messages.shape[1], messages.dtype, bool(nonfinite)) == (1, torch.uint8, False)
    assert messages.flatten().tolist() == oracle_messages(route, rows, sent, key=3)
    assert form.send_splits == form.recv_splits
    assert sum(form.send_splits) == len(messages)
    peers = torch.repeat_interleave(torch.arange(route.size), torch.tensor(route.send_splits))
    for peer in range(route.size):
        leaving = sent[route.expand][peers == peer].tolist()
        data = sum(4 + math.ceil(bits * num_features / 8) for bits in leaving)
        assert form.send_splits[peer] == (0 if peer == route.rank else HEADER_BYTES + data)


@given(mixture=mixtures(), num_features=st.sampled_from(FEATURES))
@settings(max_examples=150, deadline=None)
def test_each_row_arrives_as_where_every_row_has_its_bits(mixture, num_features: int) -> None:
    route, sent, num_rows = mixture
    rows = random_rows(num_rows, num_features)
    form = mirrored(route, sent, num_features)
    guarded = torch.full((len(route.expand) + 2, num_features), 77.0)
    form.decode(form.encode(rows, key=3)[0], guarded[1:-1])
    assert bool((guarded[[0, -1]] == 77.0).all())
    for bits in WIDTHS:
        plain = CodecFormat(Bits(bits), route, num_features=num_features, dtype=torch.float32)
        expected = torch.empty(len(route.expand), num_features)
        plain.decode(plain.encode(rows, key=3)[0], expected)
        mine = sent[route.expand] == bits
        assert torch.equal(guarded[1:-1][mine], expected[mine])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_features", FEATURES)
def test_constant_rows_are_exact(num_features: int, dtype: torch.dtype) -> None:
    values = torch.tensor([0.0, -0.0, 1 / 3, -1e-3, 3e4, 7.0, 1e-7, -5.0]).to(dtype)
    rows = values[:, None].repeat(1, num_features)
    out = round_trip(rows, [1, 8, 4, 2, 8, 4, 2, 1])
    assert torch.equal(out.view(torch.uint8), rows.view(torch.uint8))


def test_mean_over_keys_is_the_row_within_the_confidence_interval() -> None:
    widths, num_keys = [4, 1, 2, 8, 1, 2, 4, 8], 300
    rows = random_rows(8, 33) + 0.5
    levels = 2.0 ** torch.tensor(widths)[:, None] - 1
    spread = rows.amax(1, keepdim=True) - rows.amin(1, keepdim=True)
    step = (spread + rows.amin(1, keepdim=True).abs() / 128) * (1 + 1 / 64) / levels
    errors = torch.zeros(8, 33)
    for key in range(num_keys):
        once = (round_trip(rows, widths, key) - rows) / step
        assert once.abs().max() <= 1.0
        errors += once / num_keys
    # Hoeffding: one element's error lies within a step, so does the sum's, by independence, with
    # probability 1 - 1e-6 over all elements.
    assert errors.abs().max() < math.sqrt(math.log(2 * rows.numel() / 1e-6) / (2 * num_keys))


def test_key_alone_decides_the_rounding() -> None:
    rows, widths = random_rows(4, 64), [1, 2, 4, 8]
    assert torch.equal(round_trip(rows, widths, 5), round_trip(rows, widths, 5))
    other = round_trip(rows, widths, 2**64 - 1)
    assert bool((round_trip(rows, widths, 5) != other).any(dim=1).all())


def test_more_bits_are_closer() -> None:
    rows = random_rows(1, 256).repeat(4, 1)
    error = (round_trip(rows, [8, 1, 4, 2]) - rows).abs().amax(dim=1)
    assert error.argsort().tolist() == [0, 2, 3, 1]


def test_one_bit_rows_may_use_the_centroid_code() -> None:
    rows = torch.tensor([[0.0, 1.0, 5.0, 6.0], [0.0, 1.0, 2.0, 3.0]])
    out = round_trip(rows, [1, 8], codecs=CODECS | {1: OneBit("centroid")})
    assert out[0].tolist() == [0.5, 0.5, 5.5, 5.5]
    assert (out[1] - rows[1]).abs().max() <= 3.1 / 255


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_row_with_inf_or_nan_is_flagged_whatever_its_bits(value: float, row: int) -> None:
    rows = random_rows(5, 9)
    rows[row, 3] = value
    route = Route(0, torch.arange(4), torch.arange(4), (0, 4), (0, 4))
    assert mirrored(route, as_bits([1, 2, 4, 8]), 9).encode(rows, 0)[1]
    rows[row, 3] = 0.0
    rows[4] = value  # is not sent
    assert not mirrored(route, as_bits([1, 2, 4, 8]), 9).encode(rows, 0)[1]


def test_headers_stand_before_every_message_and_change_no_row() -> None:
    route = Route(1, None, torch.arange(5), (2, 0, 0, 3), (2, 0, 0, 3))
    form = mirrored(route, as_bits([8, 1, 2, 2, 4]), 9)
    rows = random_rows(5, 9)
    messages, _ = form.encode(rows, 0)
    before, after = torch.empty(5, 9), torch.empty(5, 9)
    form.decode(messages, before)
    header = torch.arange(1, 1 + HEADER_BYTES, dtype=torch.uint8)
    form.write_headers(messages, header)
    assert torch.equal(form.read_headers(messages), header.expand(3, HEADER_BYTES))
    starts = [0, form.send_splits[0], form.send_splits[0] + form.send_splits[2]]
    for start in starts:
        assert torch.equal(messages[start : start + HEADER_BYTES, 0], header)
    form.decode(messages, after)
    assert torch.equal(after, before)


@pytest.mark.parametrize("size", [1, 3])
def test_rank_without_rows_sends_headers_only(size: int) -> None:
    nothing = torch.empty(0, dtype=torch.int64)
    route = Route(0, nothing, nothing, (0,) * size, (0,) * size)
    form = mirrored(route, as_bits([]), 9)
    messages, nonfinite = form.encode(torch.empty(0, 9), 0)
    assert (tuple(messages.shape), bool(nonfinite)) == (((size - 1) * HEADER_BYTES, 1), False)
    form.write_headers(messages, torch.ones(HEADER_BYTES, dtype=torch.uint8))
    assert tuple(form.read_headers(messages).shape) == (size - 1, HEADER_BYTES)
    assert bool((messages == 1).all())
    form.decode(messages, torch.empty(0, 9))


@given(data=st.data(), num_features=st.sampled_from([1, 7, 8, 9]))
@settings(max_examples=200, deadline=None)
def test_random_bytes_raise_or_decode_to_finite_rows(data, num_features: int) -> None:
    route = Route(0, None, torch.arange(5), (0, 2, 3), (0, 2, 3))
    form = mirrored(route, as_bits([8, 1, 2, 4, 2]), num_features)
    length = sum(form.recv_splits)
    raw = data.draw(st.binary(min_size=length, max_size=length))
    received = torch.frombuffer(bytearray(raw), dtype=torch.uint8)[:, None]
    guarded = torch.full((7, num_features), 77.0)
    raised = ""
    try:
        form.decode(received, guarded[1:-1])
    except ValueError as error:
        raised = str(error)
    assert ("row" in raised) if raised else bool(guarded.isfinite().all())
    assert bool((guarded[[0, -1]] == 77.0).all())


def test_cut_messages_raise() -> None:
    route = Route(0, None, torch.arange(2), (0, 2), (0, 2))
    form = mirrored(route, as_bits([1, 8]), 9)
    messages, _ = form.encode(random_rows(2, 9), 0)
    with pytest.raises((ValueError, RuntimeError)):
        form.decode(messages[:-1], torch.empty(2, 9))


def test_description_tells_tables_features_dtypes_and_codecs_apart() -> None:
    route = Route(0, None, torch.arange(2), (0, 2), (0, 2))
    bits = as_bits([1, 8])
    first = mirrored(route, bits, 9)
    others = [
        mirrored(route, bits, 9, version=1),
        mirrored(route, bits, 10),
        mirrored(route, bits, 9, dtype=torch.float16),
        mirrored(route, bits, 9, codecs=CODECS | {1: OneBit("centroid")}),
        mirrored(route, bits, 9, codecs=CODECS | {8: FullPrecision()}),
    ]
    assert {form.identifier for form in [first, *others]} == {0x0400}
    assert len({form.description for form in [first, *others]}) == 6
    assert mirrored(route, as_bits([2, 2]), 9).description == first.description


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"sent": as_bits([1])}, "each of 2 rows for 'sent', got torch.uint8 (1,)"),
        ({"sent": torch.tensor([1, 2])}, "for 'sent', got torch.int64 (2,). Give a uint8"),
        ({"sent": as_bits([1, 3])}, "1, 2, 4 or 8 for each of 2 rows for 'sent', got 3 for row 1."),
        ({"received": as_bits([1, 2])}, "each of 3 rows for 'received', got torch.uint8 (2,)"),
        ({"received": as_bits([0, 1, 16])}, "for 'received', got 0 for row 0."),
        ({"codecs": {1: Bits(1)}}, "a codec for each of (1, 2, 4, 8) for 'codecs', got [1]."),
    ],
)
def test_argument_that_is_not_allowed_raises(change: dict, text: str) -> None:
    route = Route(0, None, torch.arange(2), (0, 2), (0, 3))
    allowed = {"codecs": CODECS, "sent": as_bits([1, 8]), "received": as_bits([2, 2, 4])}
    allowed |= {"version": 0, "num_features": 9, "dtype": torch.float32}
    MixedFormat(route, **allowed)
    with pytest.raises(ValueError, match="^MixedFormat: expected .*" + re.escape(text)):
        MixedFormat(route, **(allowed | change))


@pytest.mark.parametrize(("send", "recv"), [((0, 1), (0, 0)), ((0, 0), (0, 1))])
def test_messages_beyond_32_bits_raise_with_the_cure(
    send: tuple[int, int], recv: tuple[int, int]
) -> None:
    route = Route(0, None, torch.arange(sum(send)), send, recv)
    options = {"codecs": CODECS, "version": 0, "dtype": torch.float32}
    bits = {"sent": as_bits([8] * sum(send)), "received": as_bits([8] * sum(recv))}
    most = 2**31 - 1 - HEADER_BYTES - 4
    MixedFormat(route, **options, **bits, num_features=most)
    with pytest.raises(
        ValueError, match=r"at most 2147483647 bytes .* rank 0 .* got 2147483648\. Use fewer bits,"
    ):
        MixedFormat(route, **options, **bits, num_features=most + 1)
