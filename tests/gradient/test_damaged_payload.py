"""Payloads that were right and then damaged: refused by one error, or what their headers say."""

from __future__ import annotations

import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import horovod_sylvie as hvs
from horovod_sylvie.gradient.payload import Header, open_payload, receive_payloads, seal
from horovod_sylvie.gradient.payload_layout import HEADER_BYTES, PayloadLayout, make_layout
from horovod_sylvie.ops.checksum import checksum

STEP, RANK = 7, 2
CHECKSUM = 40  # where it is
HEADERS = st.builds(
    Header,
    num_nonfinite=st.sampled_from([0, 1, 2**32 - 1]),
    empty=st.booleans(),
    wrong_rank=st.none() | st.integers(0, 3),
)
BYTES = st.sampled_from([0, 1, 0x80, 0xFF]) | st.integers(0, 255)


def layout_of() -> PayloadLayout:
    return make_layout([40], [4], torch.bfloat16, description="plan")


def sealed(header: Header) -> bytes:
    payload = torch.zeros(layout_of().nbytes, dtype=torch.uint8)
    seal(payload, layout_of(), header, step=STEP, rank=RANK)
    return payload.numpy().tobytes()


def as_tensor(raw: bytes | bytearray) -> Tensor:
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)


def opened(raw: bytes | bytearray) -> Header:
    received = receive_payloads(as_tensor(raw)[None])[0]
    return open_payload(received, layout_of(), step=STEP, rank=RANK, group="fc.weight")


@given(
    header=HEADERS,
    damage=st.dictionaries(st.integers(0, layout_of().nbytes - 1), BYTES, min_size=1, max_size=8),
)
@settings(max_examples=300, deadline=None)
def test_damaged_payload_is_refused_and_names_the_rank(
    header: Header, damage: dict[int, int]
) -> None:
    raw = sealed(header)
    damaged = bytearray(raw)
    for place, value in damage.items():
        damaged[place] = value
    if damaged == raw:
        assert opened(damaged) == header
        return
    with pytest.raises(hvs.PayloadError, match="^the payload of rank 2 for gradient group 'fc.we"):
        opened(damaged)


@given(
    header=HEADERS,
    damage=st.dictionaries(st.integers(0, HEADER_BYTES - 1), BYTES, min_size=1, max_size=4),
)
@settings(max_examples=300, deadline=None)
def test_header_that_is_forged_is_refused_or_read_as_it_says(
    header: Header, damage: dict[int, int]
) -> None:
    forged = bytearray(sealed(header))
    for place, value in damage.items():
        forged[place] = value
    struct.pack_into("<Q", forged, CHECKSUM, 0)
    struct.pack_into("<Q", forged, CHECKSUM, checksum(as_tensor(forged)))
    flags, count, wrong = struct.unpack_from("<6xH28xI16xI", forged)
    right = bytearray(sealed(header))
    struct.pack_into("<H", right, 6, flags & 3)
    struct.pack_into("<I", right, 36, count)
    struct.pack_into("<I", right, 56, wrong)
    right[CHECKSUM : CHECKSUM + 8] = forged[CHECKSUM : CHECKSUM + 8]
    if forged == right:  # nothing is changed but what a header may say
        said = Header(count, bool(flags & 2), wrong - 1 if wrong else None)
        assert opened(forged) == said
        return
    with pytest.raises(hvs.PayloadError, match="Nothing of it was used"):
        opened(forged)
