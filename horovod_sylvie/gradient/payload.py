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

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

from ..comm.errors import CommunicationError
from ..device.from_host import write_from_host
from ..ops.checksum import checksum_rows
from .payload_layout import HEADER_BYTES, VERSION, PayloadLayout

_MAGIC: Final = b"HVSG"
_HEADER: Final = struct.Struct("<4sHHQQQIIQ8xI4x")
_HEADER_WORDS: Final = HEADER_BYTES // 8
_FLAGS_WORD: Final = 0  # in its upper quarter
_COUNT_WORD: Final = 4  # in its upper half
_CHECKSUM_WORD: Final = 5
_MAX_COUNT: Final = 2**32 - 1
_NONFINITE: Final = 1
_EMPTY: Final = 2


class PayloadError(CommunicationError):
    """Say that what another rank sent is not what this rank must receive."""


@dataclass(frozen=True)
class Header:
    """What a rank says about its payload.

    Attributes:
        num_nonfinite: Elements of its gradients that were not finite. Where it is sent, it may be
            a tensor on the payload's device, [], int64, that nobody has waited for.
        empty: Whether it sends nothing.
        wrong_rank: A rank whose payload was wrong, so that nothing is sent; mostly None.
    """

    num_nonfinite: int | Tensor = 0
    empty: bool = False
    wrong_rank: int | None = None


class ReceivedPayload(NamedTuple):
    """What decides whether a payload from the wire is used.

    Attributes:
        raw: Its header.
        found: Its checksum, as it should say in the header.
    """

    raw: bytes
    found: int


def seal(payload: Tensor, layout: PayloadLayout, header: Header, *, step: int, rank: int) -> None:
    """Write the header of a payload whose sections are written; see `seal_rows`.

    Args:
        payload: Written. [layout.nbytes], uint8.
        layout: Its layout.
        header: What to say.
        step: Optimizer step.
        rank: This rank.
    """
    seal_rows(payload[None], [layout], header, step=step, rank=rank)


def seal_rows(
    payloads: Tensor, layouts: Sequence[PayloadLayout], header: Header, *, step: int, rank: int
) -> None:
    """Write the headers of payloads whose sections are written; waits for no device.

    Args:
        payloads: Written. [P, B], uint8.
        layouts: Their layouts.
        header: What to say in each.
        step: Optimizer step.
        rank: This rank.
    """
    raw = b"".join(_fields(layout, header, step, rank) for layout in layouts)
    fields = torch.frombuffer(bytearray(raw), dtype=torch.int64).view(len(layouts), -1)
    words = payloads.view(torch.int64)  # [P, B / 8]
    write_from_host(words[:, :_HEADER_WORDS], fields)
    if isinstance(header.num_nonfinite, Tensor):
        count = header.num_nonfinite.clamp(max=_MAX_COUNT)
        words[:, _COUNT_WORD] += count << 32
        words[:, _FLAGS_WORD] += (count > 0).to(torch.int64) << 48  # _NONFINITE
    words[:, _CHECKSUM_WORD] = checksum_rows(payloads)


def receive_payloads(payloads: Tensor) -> list[ReceivedPayload]:
    """Read what decides whether payloads from the wire are used; waits for the device, once.

    Args:
        payloads: What was received; the checksum fields are zeroed. [P, B], uint8.
    """
    words = payloads.view(torch.int64)  # [P, B / 8]
    headers = words[:, :_HEADER_WORDS].clone()
    words[:, _CHECKSUM_WORD] = 0
    both = torch.cat((headers, checksum_rows(payloads)[:, None]), dim=1).cpu().numpy()
    return [
        ReceivedPayload(row[:_HEADER_WORDS].tobytes(), int(row[_HEADER_WORDS]) % (1 << 64))
        for row in both
    ]


def open_payload(
    payload: ReceivedPayload, layout: PayloadLayout, *, step: int, rank: int, group: str
) -> Header:
    """Check a payload from the wire, and return what its header says.

    Args:
        payload: What was received.
        layout: What it must be.
        step: Optimizer step that it must be of.
        rank: Rank that it must be from.
        group: Name of the group, for messages.

    Raises:
        PayloadError: If anything is wrong with it. The text names the rank and what differs.
    """
    _, _, flags, _, _, _, _, num_nonfinite, checksum, wrong = _HEADER.unpack(payload.raw)
    header = Header(num_nonfinite, bool(flags & _EMPTY), wrong - 1 if wrong else None)
    said = _fields(layout, header, step, rank, flags & _NONFINITE, checksum)
    if payload.found != checksum or payload.raw != said:
        raise wrong_payload(rank, group, step, _difference(payload, layout, step))
    return header


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


def _difference(payload: ReceivedPayload, layout: PayloadLayout, step: int) -> str:
    """Say what is wrong with a header."""
    raw, found = payload
    magic, version, flags, plan, sent_step, nbytes, sender, _, expected, _ = _HEADER.unpack(raw)
    if not any(raw):
        return (
            "it is all zeros, as after hvd.join(). Make the optimizer with uneven_batches=True and "
            "call its own join()"
        )
    if found != expected:
        return f"checksum {found:#018x} instead of {expected:#018x}: bytes changed on the way"
    if (magic, version) != (_MAGIC, VERSION):
        return (
            f"it begins with {magic!r}, version {version}, instead of {_MAGIC!r}, version "
            f"{VERSION}: another release of horovod_sylvie"
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
    header: Header,
    step: int,
    rank: int,
    nonfinite: int | None = None,
    payload_checksum: int = 0,
) -> bytes:
    """Return a header's bytes, with a count of 0 where that is a tensor.

    `nonfinite`: the flag; None for what the count says.
    """
    count = header.num_nonfinite if isinstance(header.num_nonfinite, int) else 0
    if nonfinite is None:
        nonfinite = _NONFINITE if count else 0
    return _HEADER.pack(
        _MAGIC,
        VERSION,
        nonfinite | (_EMPTY if header.empty else 0),
        layout.plan_hash,
        step,
        layout.nbytes,
        rank,
        min(count, _MAX_COUNT),
        payload_checksum,
        0 if header.wrong_rank is None else header.wrong_rank + 1,
    )
