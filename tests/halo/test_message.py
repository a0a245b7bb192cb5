"""The header of every message: its bytes by hand, and nothing else accepted."""

from __future__ import annotations

import math
import re
import struct
import zlib
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from horovod_sylvie.halo.message import (
    FLAG_NONFINITE,
    FLAG_STALE,
    HEADER_BYTES,
    Header,
    Received,
    check_headers,
    header_rows,
    topic_of,
    write_outcome,
)

HEADER = Header(codec=0x0201, topic=0xDEADBEEF, step=7, change=1.0, norm=4.0)
# magic "HVSM", version, flags, codec, topic, step, change, norm
RAW = bytes.fromhex("4856534d 02 00 0102 efbeadde 07000000 000000000000f03f 0000000000001040")


def as_tensor(raws: list[bytes]) -> Tensor:
    """Return headers by peer. [Q, HEADER_BYTES]."""
    return torch.frombuffer(bytearray(b"".join(raws)), dtype=torch.uint8).reshape(len(raws), -1)


def check(raws: list[bytes], own: Header = HEADER) -> Received:
    """Check headers as rank 0 of `len(raws) + 1` ranks."""
    peers = list(range(1, len(raws) + 1))
    return check_headers(as_tensor(raws), own, peers, "sylvie.halo.conv1.forward")


def with_norms(change: float, norm: float) -> bytes:
    return RAW[:16] + struct.pack("<dd", change, norm)


@pytest.mark.parametrize(
    ("row_bytes", "rows"), [(1, 32), (5, 7), (8, 4), (31, 2), (32, 1), (33, 1), (2408, 1)]
)
def test_header_takes_the_rows_that_its_bytes_need(row_bytes: int, rows: int) -> None:
    assert header_rows(row_bytes) == rows


def test_header_bytes_are_the_table() -> None:
    assert len(RAW) == HEADER_BYTES == 32
    written = HEADER.to_tensor()
    assert (tuple(written.shape), written.dtype) == ((32,), torch.uint8)
    assert bytes(written.tolist()) == RAW
    flagged = replace(HEADER, flags=FLAG_NONFINITE | FLAG_STALE)
    assert bytes(flagged.to_tensor().tolist()) == RAW[:5] + b"\x03" + RAW[6:]


BARE = replace(HEADER, change=0.0, norm=0.0, flags=FLAG_STALE)


@pytest.mark.parametrize("nonfinite", [False, True])
@pytest.mark.parametrize(
    ("norms", "told"),
    [
        (None, (0.0, 0.0)),
        ((1.5, 0.1), (1.5, 0.1)),
        ((0.0, 0.0), (0.0, 0.0)),
        ((math.inf, 1.0), (1e300, 1.0)),
        ((math.nan, 1.0), (1e300, 1.0)),
        ((1.0, math.nan), (1e300, 1.0)),
        ((1e308, 1e308), (1e300, 1.0)),  # whose sum is too large
    ],
)
def test_outcome_of_encoding_is_written_where_the_header_is(
    norms: tuple[float, float] | None, told: tuple[float, float], nonfinite: bool
) -> None:
    written = BARE.to_tensor()
    write_outcome(
        written,
        torch.tensor(nonfinite),
        None if norms is None else torch.tensor(norms, dtype=torch.float64),
    )
    change, norm = (0.0, 0.0) if nonfinite else told
    expected = replace(
        BARE, flags=FLAG_STALE | FLAG_NONFINITE * nonfinite, change=change, norm=norm
    )
    assert torch.equal(written, expected.to_tensor())
    assert BARE.as_sent(written) == expected


def test_header_step_wraps_at_32_bits() -> None:
    late = replace(HEADER, step=2**32 + 7)
    assert torch.equal(late.to_tensor(), HEADER.to_tensor())
    assert check([RAW], late).nonfinite == []


def test_topic_is_the_checksum_of_what_both_ends_must_agree_on() -> None:
    topic = topic_of("ab12", "sylvie.halo.conv1.forward", "36|torch.float32")
    assert topic == zlib.crc32(b"ab12|sylvie.halo.conv1.forward|36|torch.float32")
    assert topic != topic_of("ab13", "sylvie.halo.conv1.forward", "36|torch.float32")
    assert topic != topic_of("ab12", "sylvie.halo.conv1.backward", "36|torch.float32")
    assert topic != topic_of("ab12", "sylvie.halo.conv1.forward", "37|torch.float32")


def test_drift_is_that_of_all_ranks_together() -> None:
    said = check([with_norms(5.0, 8.0), with_norms(3.0, 4.0)])
    assert said == Received([], math.sqrt((1 + 5 + 3) / (4 + 8 + 4)))


@given(norms=st.lists(st.tuples(st.floats(0, 1e30), st.floats(0, 1e30)), min_size=2, max_size=5))
def test_drift_is_the_same_number_on_every_rank(norms: list[tuple[float, float]]) -> None:
    drifts = []
    for rank, (change, norm) in enumerate(norms):
        others = [with_norms(*each) for peer, each in enumerate(norms) if peer != rank]
        drifts.append(check(others, replace(HEADER, change=change, norm=norm)).drift)
    assert len({struct.pack("<d", drift) for drift in drifts}) == 1


def test_drift_of_nothing_is_unknown() -> None:
    assert math.isnan(check([with_norms(0.0, 0.0)], replace(HEADER, change=0.0, norm=0.0)).drift)


@pytest.mark.parametrize(("change", "norm"), [(-1.0, 4.0), (math.nan, 4.0), (1.0, math.inf)])
def test_norms_that_no_sender_writes_raise(change: float, norm: float) -> None:
    text = "expected finite norms of at least 0 in the message header, got others from rank 2"
    with pytest.raises(ValueError, match=text):
        check([RAW, with_norms(change, norm)])


def test_peers_whose_rows_are_nonfinite_are_returned() -> None:
    flagged = RAW[:5] + b"\x01" + RAW[6:]
    assert check([flagged, RAW, flagged]).nonfinite == [1, 3]


def test_own_flag_is_not_expected_of_peers() -> None:
    assert check([RAW], replace(HEADER, flags=FLAG_NONFINITE)).nonfinite == []


def test_ranks_that_do_not_agree_on_old_rows_raise() -> None:
    with pytest.raises(ValueError, match="expected stale flag 2 in the message header, got 0 from"):
        check([RAW], replace(HEADER, flags=FLAG_STALE))
    stale = RAW[:5] + b"\x03" + RAW[6:]
    with pytest.raises(ValueError, match="expected stale flag 0 in the message header, got 2 from"):
        check([RAW, stale])
    assert check([stale], replace(HEADER, flags=FLAG_STALE)).nonfinite == [1]


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (0, "expected magic b'HVSM' in the message header, got b'IVSM' from rank 2"),
        (3, "expected magic b'HVSM' in the message header, got b'HVSL' from rank 2"),
        (4, "expected version 2 in the message header, got 3 from rank 2"),
        (6, "expected codec 513 in the message header, got 512 from rank 2"),
        (7, "expected codec 513 in the message header, got 769 from rank 2"),
        (8, f"expected topic {0xDEADBEEF} in the message header, got {0xDEADBEEE} from rank 2"),
        (11, "expected topic 3735928559 in the message header, got 3752705775 from rank 2"),
        (12, "expected step 7 in the message header, got 6 from rank 2"),
        (15, "expected step 7 in the message header, got 16777223 from rank 2"),
    ],
)
def test_changed_field_raises_with_peer_and_field(offset: int, text: str) -> None:
    changed = bytearray(RAW)
    changed[offset] ^= 1
    with pytest.raises(ValueError, match=re.escape(f"'sylvie.halo.conv1.forward': {text}. The ")):
        check([RAW, bytes(changed), RAW])


@pytest.mark.parametrize("flags", [0x04, 0x80, 0x81, 0xFD])
def test_unused_flag_bits_raise(flags: int) -> None:
    with pytest.raises(ValueError, match="expected zeros in the unused bits .* from rank 1"):
        check([RAW[:5] + bytes([flags]) + RAW[6:], RAW])


@given(raw=st.binary(min_size=32, max_size=32))
@settings(max_examples=200, deadline=None)
def test_random_bytes_raise(raw: bytes) -> None:
    with pytest.raises(ValueError, match="in the message header|in the unused bits"):
        check([RAW, raw])


@given(bit=st.integers(0, 8 * 16 - 1))
@settings(max_examples=200, deadline=None)
def test_any_flipped_bit_but_the_flag_raises(bit: int) -> None:
    damaged = bytearray(RAW)
    damaged[bit // 8] ^= 1 << bit % 8
    if bit == 8 * 5:  # bit 0 of the flags
        assert check([bytes(damaged)]).nonfinite == [1]
        return
    with pytest.raises(ValueError, match="from rank 1"):
        check([bytes(damaged)])
