"""The header of every message: its bytes by hand, and nothing else accepted."""

from __future__ import annotations

import re
import zlib
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from horovod_sylvie.halo.message import (
    FLAG_NONFINITE,
    HEADER_BYTES,
    Header,
    check_headers,
    header_rows,
    topic_of,
)

HEADER = Header(codec=0x0201, topic=0xDEADBEEF, step=7)
# magic "HVSM", version, flags, codec, topic, step
RAW = bytes.fromhex("4856534d 01 00 0102 efbeadde 07000000")


def as_rows(raws: list[bytes], row_bytes: int = HEADER_BYTES) -> Tensor:
    """Return header rows by peer. [Q, header_rows, row_bytes]."""
    size = header_rows(row_bytes) * row_bytes
    data = bytearray(b"".join(raw.ljust(size, b"\0") for raw in raws))
    return torch.frombuffer(data, dtype=torch.uint8).reshape(len(raws), -1, row_bytes)


def check(raws: list[bytes], row_bytes: int = HEADER_BYTES) -> list[int]:
    """Check headers as rank 0 of `len(raws) + 1` ranks."""
    peers = list(range(1, len(raws) + 1))
    return check_headers(as_rows(raws, row_bytes), HEADER, peers, "sylvie.halo.conv1.forward")


@pytest.mark.parametrize(
    ("row_bytes", "rows"), [(1, 16), (5, 4), (8, 2), (15, 2), (16, 1), (17, 1), (2408, 1)]
)
def test_header_takes_the_rows_that_sixteen_bytes_need(row_bytes: int, rows: int) -> None:
    assert header_rows(row_bytes) == rows
    written = HEADER.to_rows(row_bytes)
    assert (tuple(written.shape), written.dtype) == ((rows, row_bytes), torch.uint8)
    assert bytes(written.flatten().tolist()) == RAW.ljust(rows * row_bytes, b"\0")


def test_header_bytes_are_the_table() -> None:
    assert len(RAW) == HEADER_BYTES == 16
    flagged = replace(HEADER, flags=FLAG_NONFINITE)
    assert bytes(flagged.to_rows(16)[0].tolist()) == RAW[:5] + b"\x01" + RAW[6:]


def test_header_step_wraps_at_32_bits() -> None:
    late = replace(HEADER, step=2**32 + 7)
    assert torch.equal(late.to_rows(16), HEADER.to_rows(16))
    assert check_headers(as_rows([RAW]), late, [1], "x") == []


def test_topic_is_the_checksum_of_what_both_ends_must_agree_on() -> None:
    topic = topic_of("ab12", "sylvie.halo.conv1.forward", 36, torch.float32)
    assert topic == zlib.crc32(b"ab12|sylvie.halo.conv1.forward|36|torch.float32")
    assert topic != topic_of("ab13", "sylvie.halo.conv1.forward", 36, torch.float32)
    assert topic != topic_of("ab12", "sylvie.halo.conv1.backward", 36, torch.float32)
    assert topic != topic_of("ab12", "sylvie.halo.conv1.forward", 37, torch.float32)
    assert topic != topic_of("ab12", "sylvie.halo.conv1.forward", 36, torch.bfloat16)


@pytest.mark.parametrize("row_bytes", [5, 8, 16, 36])
def test_expected_headers_are_accepted(row_bytes: int) -> None:
    assert check([RAW, RAW, RAW], row_bytes) == []


def test_peers_whose_rows_are_nonfinite_are_returned() -> None:
    flagged = RAW[:5] + b"\x01" + RAW[6:]
    assert check([flagged, RAW, flagged]) == [1, 3]


def test_own_flag_is_not_expected_of_peers() -> None:
    own = replace(HEADER, flags=FLAG_NONFINITE)
    assert check_headers(as_rows([RAW]), own, [1], "x") == []


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (0, "expected magic b'HVSM' in the message header, got b'IVSM' from rank 2"),
        (3, "expected magic b'HVSM' in the message header, got b'HVSL' from rank 2"),
        (4, "expected version 1 in the message header, got 0 from rank 2"),
        (6, "expected codec 513 in the message header, got 512 from rank 2"),
        (7, "expected codec 513 in the message header, got 769 from rank 2"),
        (8, f"expected topic {0xDEADBEEF} in the message header, got {0xDEADBEEE} from rank 2"),
        (11, "expected topic 3735928559 in the message header, got 3752705775 from rank 2"),
        (12, "expected step 7 in the message header, got 6 from rank 2"),
        (15, "expected step 7 in the message header, got 16777223 from rank 2"),
    ],
)
@pytest.mark.parametrize("row_bytes", [7, 16, 40])
def test_changed_field_raises_with_peer_and_field(offset: int, text: str, row_bytes: int) -> None:
    changed = bytearray(RAW)
    changed[offset] ^= 1
    with pytest.raises(ValueError, match=re.escape(f"'sylvie.halo.conv1.forward': {text}. The ")):
        check([RAW, bytes(changed), RAW], row_bytes)


@pytest.mark.parametrize("flags", [0x02, 0x80, 0x81, 0xFF])
def test_unused_flag_bits_raise(flags: int) -> None:
    with pytest.raises(ValueError, match="expected zeros in the unused bits .* from rank 1"):
        check([RAW[:5] + bytes([flags]) + RAW[6:], RAW])


def test_padding_that_is_not_zero_raises() -> None:
    with pytest.raises(ValueError, match="expected zeros in the unused bits .* from rank 2"):
        check([RAW, RAW.ljust(20, b"\0") + b"\1"], row_bytes=7)


@given(raw=st.binary(min_size=24, max_size=24))
@settings(max_examples=200, deadline=None)
def test_random_bytes_raise(raw: bytes) -> None:
    with pytest.raises(ValueError, match="in the message header|in the unused bits"):
        check([RAW, raw], row_bytes=12)


@given(bit=st.integers(0, 8 * 24 - 1))
@settings(max_examples=200, deadline=None)
def test_any_flipped_bit_but_the_flag_raises(bit: int) -> None:
    damaged = bytearray(RAW.ljust(24, b"\0"))
    damaged[bit // 8] ^= 1 << bit % 8
    if bit == 8 * 5:  # bit 0 of the flags
        assert check([bytes(damaged)], row_bytes=12) == [1]
        return
    with pytest.raises(ValueError, match="from rank 1"):
        check([bytes(damaged)], row_bytes=12)
