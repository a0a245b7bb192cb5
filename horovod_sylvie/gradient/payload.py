"""The bytes of one group: a header, then the selected elements of each of its parameters.

Little-endian. All payloads of a group have one size, so that Horovod's response cache hits.

| offset | bytes | meaning                                                                       |
|--------|-------|-------------------------------------------------------------------------------|
| 0      | 4     | magic, `HVSG`                                                                 |
| 4      | 2     | version, 1                                                                    |
| 6      | 2     | flags: bit 0 a gradient was not finite, bit 1 empty (nothing is sent)         |
| 8      | 8     | plan hash: what ranks must agree on; see below                                |
| 16     | 8     | optimizer step                                                                |
| 24     | 8     | bytes of the payload                                                          |
| 32     | 4     | rank of the sender                                                            |
| 36     | 4     | number of gradient elements that were not finite, at most 2^32 - 1            |
| 40     | 8     | checksum of the payload with this field zero (`ops.checksum`)                 |
| 48     | 8     | zero                                                                          |
| 56     | 4     | one more than the rank whose payload the sender could not use; 0: none        |
| 60     | 4     | zero                                                                          |
| 64     |       | sections, one after another (`ops.top_k_section`), each a multiple of 8 bytes |
| behind | 4 W   | float32: gradients that travel whole, one after another                       |

The plan hash is of names, shapes, memory orders, K, dtypes, options, and the plan of `lags`. Field
56 is the two-phase exchange's, where it names the rank whose row its owner could not use.

nbytes = 64 + sum of sections + 4 W, padded with zeros to a multiple of 512: gathered payloads are
then aligned, which Horovod copies faster. With bfloat16 values a section is 4 K + 4 ceil(D / 65536)
bytes.

Shapes: P ranks, D elements of a parameter, K selected, W elements that travel whole.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from ..comm.errors import CommunicationError
from ..device.from_host import write_from_host
from ..ops.checksum import checksum
from ..ops.top_k import section_bytes

HEADER_BYTES: Final = 64
_ALIGNMENT: Final = 512
_MAGIC: Final = b"HVSG"
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<4sHHQQQIIQ8xI4x")
_CHECKSUM_AT: Final = 40
_NONFINITE: Final = 1
_EMPTY: Final = 2


class PayloadError(CommunicationError):
    """Say that what another rank sent is not what this rank must receive."""


@dataclass(frozen=True)
class PayloadLayout:
    """Where the sections of a group's payload are; the same on every rank.

    Attributes:
        num_elements: D of each parameter.
        num_selected: K of each parameter.
        offsets: First byte of each section.
        whole_begin: First byte of what travels whole.
        num_whole: W.
        nbytes: Bytes of the payload.
        plan_hash: 64 bits of everything that ranks must agree on.
    """

    num_elements: tuple[int, ...]
    num_selected: tuple[int, ...]
    value_dtype: torch.dtype
    offsets: tuple[int, ...]
    whole_begin: int
    num_whole: int
    nbytes: int
    plan_hash: int


@dataclass(frozen=True)
class Header:
    """What a rank says about its payload.

    Attributes:
        num_nonfinite: Elements of its gradients that were not finite.
        empty: Whether it sends nothing.
        wrong_rank: A rank whose payload was wrong, so that nothing is sent; mostly None.
    """

    num_nonfinite: int = 0
    empty: bool = False
    wrong_rank: int | None = None


def make_layout(
    num_elements: Sequence[int],
    num_selected: Sequence[int],
    value_dtype: torch.dtype,
    *,
    num_whole: int = 0,
    description: str,
) -> PayloadLayout:
    """Lay out a group's payload.

    Args:
        num_elements: D of each parameter.
        num_selected: K of each parameter.
        value_dtype: torch.bfloat16 or torch.float32.
        num_whole: Number of elements that travel whole, W.
        description: What else ranks must agree on; it enters the plan hash.
    """
    offsets = []
    end = HEADER_BYTES
    for elements, selected in zip(num_elements, num_selected, strict=True):
        offsets.append(end)
        end += section_bytes(elements, selected, value_dtype)
    plan = (
        f"{_VERSION} {list(num_elements)} {list(num_selected)} {value_dtype} {num_whole} "
        f"{description}"
    )
    digest = hashlib.sha256(plan.encode()).digest()
    return PayloadLayout(
        num_elements=tuple(num_elements),
        num_selected=tuple(num_selected),
        value_dtype=value_dtype,
        offsets=tuple(offsets),
        whole_begin=end,
        num_whole=num_whole,
        nbytes=-(-(end + 4 * num_whole) // _ALIGNMENT) * _ALIGNMENT,
        plan_hash=int.from_bytes(digest[:8], "little"),
    )


def seal(payload: Tensor, layout: PayloadLayout, header: Header, *, step: int, rank: int) -> None:
    """Write the header of a payload whose sections are written.

    Args:
        payload: Written. [layout.nbytes], uint8.
        layout: Its layout.
        header: What to say.
        step: Optimizer step.
        rank: This rank.
    """
    flags = (_NONFINITE if header.num_nonfinite else 0) | (_EMPTY if header.empty else 0)
    wrong = 0 if header.wrong_rank is None else header.wrong_rank + 1
    _write(payload, 0, _fields(layout, flags, step, rank, header.num_nonfinite, wrong))
    _write(payload, _CHECKSUM_AT, struct.pack("<Q", checksum(payload)))


def open_payloads(
    payloads: Tensor, layout: PayloadLayout, *, step: int, group: str
) -> Iterator[Header]:
    """Check the payloads of all ranks one after the other, and yield what their headers say.

    Headers are read once for all of them: on a GPU each reading waits for the device.

    Args:
        payloads: By rank; the checksum fields are zeroed. [P, layout.nbytes], uint8
        layout: What each must be.
        step: Optimizer step that they must be of.
        group: Name of the group, for messages.

    Raises:
        PayloadError: If anything is wrong with one; none after it is looked at.
    """
    headers = payloads[:, :HEADER_BYTES].cpu()
    for rank, (payload, header) in enumerate(zip(payloads, headers, strict=True)):
        yield open_payload(payload, header, layout, step=step, rank=rank, group=group)


def open_payload(
    payload: Tensor, header: Tensor, layout: PayloadLayout, *, step: int, rank: int, group: str
) -> Header:
    """Check a payload from the wire, and return what its header says.

    Args:
        payload: What was received; the checksum field is zeroed. [layout.nbytes], uint8.
        header: Its first bytes, on the host. [HEADER_BYTES], uint8
        layout: What it must be.
        step: Optimizer step that it must be of.
        rank: Rank that it must be from.
        group: Name of the group, for messages.

    Raises:
        PayloadError: If anything is wrong with it. The text names the rank and what differs.
    """
    raw = header.numpy().tobytes()
    _, _, flags, _, _, _, _, num_nonfinite, expected, wrong = _HEADER.unpack(raw)
    payload[_CHECKSUM_AT : _CHECKSUM_AT + 8].zero_()
    found = checksum(payload)
    known = flags & (_NONFINITE | _EMPTY)
    fields = _fields(layout, known, step, rank, num_nonfinite, wrong, expected)
    if found != expected or raw != fields:
        raise wrong_payload(rank, group, step, _difference(raw, layout, step, found))
    return Header(num_nonfinite, bool(flags & _EMPTY), wrong - 1 if wrong else None)


def wrong_payload(rank: int, group: str, step: int, reason: str) -> PayloadError:
    """Return the error that says what is wrong with a rank's payload.

    Args:
        rank: Whose payload.
        group: Name of the group.
        step: Optimizer step.
        reason: What is wrong; no full stop.
    """
    return PayloadError(
        f"the payload of rank {rank} for gradient group '{group}' at step {step} is wrong: "
        f"{reason}. Nothing of it was used. Run the same program with the same options on every "
        "rank; if they are the same, suspect memory or the network."
    )


def _difference(raw: bytes, layout: PayloadLayout, step: int, found: int) -> str:
    """Say what is wrong with a header. `found`: the payload's checksum."""
    magic, version, flags, plan, sent_step, nbytes, sender, _, expected, _ = _HEADER.unpack(raw)
    if not any(raw):
        return (
            "it is all zeros, as after hvd.join(). Make the optimizer with uneven_batches=True and "
            "call its own join()"
        )
    if found != expected:
        return f"checksum {found:#018x} instead of {expected:#018x}: bytes changed on the way"
    if (magic, version) != (_MAGIC, _VERSION):
        return (
            f"it begins with {magic!r}, version {version}, instead of {_MAGIC!r}, version "
            f"{_VERSION}: another release of horovod_sylvie"
        )
    if plan != layout.plan_hash:
        return (
            f"plan hash {plan:#018x} instead of {layout.plan_hash:#018x}: another model, density "
            "or option"
        )
    if sent_step != step:
        return f"it is of step {sent_step} instead of {step}"
    return f"it claims to be of rank {sender} with {nbytes} bytes, flags {flags:#x}"


def _fields(
    layout: PayloadLayout,
    flags: int,
    step: int,
    rank: int,
    num_nonfinite: int,
    wrong: int,
    payload_checksum: int = 0,
) -> bytes:
    return _HEADER.pack(
        _MAGIC,
        _VERSION,
        flags,
        layout.plan_hash,
        step,
        layout.nbytes,
        rank,
        min(num_nonfinite, 2**32 - 1),
        payload_checksum,
        wrong,
    )


def _write(payload: Tensor, offset: int, raw: bytes) -> None:
    source = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    write_from_host(payload[offset : offset + len(raw)], source)
