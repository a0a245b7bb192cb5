"""The bytes of a group: what is written is read, and nothing else is believed."""

from __future__ import annotations

import re
import struct

import pytest
import torch
from torch import Tensor

import horovod_sylvie as hvs
from horovod_sylvie.gradient.payload import (
    Header,
    open_payload,
    receive_payloads,
    seal,
    seal_rows,
)
from horovod_sylvie.gradient.payload_layout import HEADER_BYTES, PayloadLayout, make_layout
from horovod_sylvie.ops.checksum import checksum
from horovod_sylvie.ops.top_k import section_bytes

STEP, RANK = 7, 2


def layout_of(description: str = "plan") -> PayloadLayout:
    return make_layout([100, 70000], [10, 700], torch.bfloat16, description=description)


def sealed(header: Header | None = None) -> Tensor:
    """Return a payload whose sections hold numbers of no meaning: they are not read here."""
    layout = layout_of()
    generator = torch.Generator().manual_seed(0)
    payload = torch.randint(256, (layout.nbytes,), dtype=torch.uint8, generator=generator)
    payload[layout.offsets[-1] + section_bytes(70000, 700, torch.bfloat16) :] = 0
    seal(payload, layout, header or Header(), step=STEP, rank=RANK)
    return payload


def opened(payload: Tensor, layout: PayloadLayout | None = None, step: int = STEP) -> Header:
    received = receive_payloads(payload.clone()[None])[0]
    return open_payload(received, layout or layout_of(), step=step, rank=RANK, group="fc.weight")


@pytest.mark.parametrize("value_dtype", [torch.bfloat16, torch.float32])
def test_layout_follows_the_formula(value_dtype: torch.dtype) -> None:
    layout = make_layout([100, 70000, 1], [10, 700, 1], value_dtype, description="")
    sections = [
        section_bytes(elements, selected, value_dtype)
        for elements, selected in zip(layout.num_elements, layout.num_selected, strict=True)
    ]
    assert layout.offsets == (64, 64 + sections[0], 64 + sections[0] + sections[1])
    assert layout.nbytes == -(-(64 + sum(sections)) // 512) * 512
    if value_dtype == torch.bfloat16:  # 4 bytes a block, 4 K, up to a multiple of 8
        assert sections == [48, 8 + 2800, 16]


@pytest.mark.parametrize(
    "header",
    [
        Header(),
        Header(empty=True),
        Header(num_nonfinite=1),
        Header(num_nonfinite=2**32 - 1),
        Header(num_nonfinite=3, empty=True),
        Header(empty=True, wrong_rank=0),
        Header(empty=True, wrong_rank=2),
    ],
)
def test_header_is_read_as_it_was_written(header: Header) -> None:
    assert opened(sealed(header)) == header


def test_header_is_laid_out_as_documented() -> None:
    raw = sealed(Header(num_nonfinite=5)).numpy().tobytes()
    layout = layout_of()
    fields = struct.unpack("<4sHHQQQIIQ16s", raw[:HEADER_BYTES])
    assert fields[:8] == (b"HVSG", 1, 1, layout.plan_hash, STEP, layout.nbytes, RANK, 5)
    assert fields[9] == bytes(16)
    blank = torch.frombuffer(bytearray(raw[:40] + bytes(8) + raw[48:]), dtype=torch.uint8)
    assert fields[8] == checksum(blank)


def test_count_that_no_field_holds_is_saturated() -> None:
    assert opened(sealed(Header(num_nonfinite=2**40))).num_nonfinite == 2**32 - 1


@pytest.mark.parametrize("count", [0, 1, 2**32 - 1, 2**40])
@pytest.mark.parametrize("empty", [False, True])
def test_count_in_a_tensor_is_sent_as_a_number_is(count: int, empty: bool) -> None:
    unread = sealed(Header(torch.tensor(count), empty))
    assert torch.equal(unread, sealed(Header(count, empty)))


def test_rows_are_sealed_each_with_its_own_layout() -> None:
    layouts = [layout_of("first"), layout_of("second")]
    rows = torch.stack([sealed(), sealed()])
    seal_rows(rows, layouts, Header(torch.tensor(3)), step=STEP, rank=RANK)
    for row, layout in zip(rows, layouts, strict=True):
        alone = row.clone()
        seal(alone, layout, Header(3), step=STEP, rank=RANK)
        assert torch.equal(row, alone)
        assert opened(row, layout) == Header(3)


def test_any_flipped_bit_is_found_and_names_the_rank() -> None:
    good = sealed()
    text = "the payload of rank 2 for gradient group 'fc.weight' at step 7 is wrong: "
    for place in range(len(good)):
        if place >= HEADER_BYTES and place % 13:  # the header whole, the rest by samples
            continue
        damaged = good.clone()
        damaged[place] ^= 1 << (place % 8)
        with pytest.raises(hvs.PayloadError, match=re.escape(text)):
            opened(damaged)


@pytest.mark.parametrize("first", [64, 512, 1024])
def test_bytes_that_changed_places_are_found(first: int) -> None:
    damaged = sealed()
    damaged[first : first + 16] = torch.cat(
        [damaged[first + 8 : first + 16], damaged[first : first + 8]]
    )
    with pytest.raises(hvs.PayloadError, match="bytes changed on the way"):
        opened(damaged)


def forged(offset: int, form: str, value: object) -> Tensor:
    """Change a field, and make the checksum right again."""
    payload = sealed()
    raw = bytearray(payload.numpy().tobytes())
    struct.pack_into(form, raw, offset, value)
    struct.pack_into("<Q", raw, 40, 0)
    struct.pack_into("<Q", raw, 40, checksum(torch.frombuffer(raw, dtype=torch.uint8)))
    return torch.frombuffer(raw, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("offset", "form", "value", "text"),
    [
        (
            0,
            "<4s",
            b"HVSM",
            "it begins with b'HVSM', version 1, instead of b'HVSG', version 1: ano",
        ),
        (4, "<H", 2, "it begins with b'HVSG', version 2, instead of"),
        (6, "<H", 4, "it claims to be of rank 2 with 3072 bytes, flags 0x4"),
        (8, "<Q", 1, "plan hash 0x0000000000000001 instead of 0x"),
        (16, "<Q", 6, "it is of step 6 instead of 7"),
        (24, "<Q", 512, "it claims to be of rank 2 with 512 bytes"),
        (32, "<I", 1, "it claims to be of rank 1 with"),
        (48, "<Q", 1, "it claims to be of rank 2 with 3072 bytes, flags 0x0"),
    ],
    ids=["magic", "version", "flags", "plan", "step", "bytes", "rank", "zero"],
)
def test_field_that_does_not_fit_is_named(offset: int, form: str, value: object, text: str) -> None:
    with pytest.raises(hvs.PayloadError, match=re.escape(f"at step 7 is wrong: {text}")):
        opened(forged(offset, form, value))


def test_payload_of_another_plan_says_so() -> None:
    with pytest.raises(hvs.PayloadError, match="another model, density or option. Nothing of it"):
        opened(sealed(), layout_of("another plan"))


def test_plan_hash_depends_on_all_that_ranks_agree_on() -> None:
    hashes = {
        make_layout(elements, selected, dtype, description=text).plan_hash
        for elements in ([100], [101])
        for selected in ([10], [11])
        for dtype in (torch.bfloat16, torch.float32)
        for text in ("a", "b")
    }
    assert len(hashes) == 16
