"""What travels between two ranks in one exchange: a header, then rows.

[Note: Message format]
A message to one rank is a number of rows of the codec's width W. The first ceil(32 / W) rows hold
the header, padded with zeros; the others are the codec's rows. Counting in rows lets one alltoall
with fixed splits move all messages, keeps every row addressable, and lifts the 2 GiB limit that
32-bit splits would put on bytes.

| offset | bytes | meaning |
|--------|-------|---------|
| 0      | 4     | magic, `HVSM` |
| 4      | 1     | version, 2 |
| 5      | 1     | flags; bit 0: a row held Inf or NaN on the sender; bit 1: stale, see below |
| 6      | 2     | format identifier, mostly a codec's |
| 8      | 4     | CRC-32 of plan digest, layer, direction and the format's description |
| 12     | 4     | step: exchanges made before under this layer and direction, mod 2^32 |
| 16     | 8     | float64, squared norm of the change of the sender's rows since the epoch before |
| 24     | 8     | float64, squared norm of the sender's rows |

A sender sets the stale bit where it computes with the rows of the epoch before: all ranks must do
so alike. All integers and floats are little-endian. A header that differs in its first 16 bytes
from what the receiver itself would send, bit 0 of the flags apart, is an error that names the
peer, and nothing of its message is used. The two norms are zero where drift is not measured or a
row is not finite. Every rank gets those of all others with the rows, so all know the drift of the
whole graph's rows without a further collective.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

MAGIC: Final = b"HVSM"
VERSION: Final = 2
HEADER_BYTES: Final = 32
FLAG_NONFINITE: Final = 1
FLAG_STALE: Final = 2

_FORMAT: Final = "<4sBBHIIdd"
_FLAGS_OFFSET: Final = 5
_NORMS_OFFSET: Final = 16
_BEYOND_ALL_BOUNDS: Final = 1e300


def header_rows(row_bytes: int) -> int:
    """Return how many rows of a width a header takes.

    Args:
        row_bytes: The codec's row width, in bytes.

    Returns:
        ceil(32 / row_bytes).
    """
    return -(-HEADER_BYTES // row_bytes)


@dataclass(frozen=True)
class Header:
    """The first bytes of every message of one exchange.

    Attributes:
        codec: The format's identifier.
        topic: CRC-32 of what both ends must agree on; see `topic_of`.
        step: Exchanges made before under the same name.
        flags: `FLAG_NONFINITE` and `FLAG_STALE`, or 0.
        change: Squared norm of the change of the rows since the epoch before.
        norm: Squared norm of the rows.
    """

    codec: int
    topic: int
    step: int
    flags: int = 0
    change: float = 0.0
    norm: float = 0.0

    def to_tensor(self) -> Tensor:
        """Return the header. [HEADER_BYTES], uint8."""
        raw = struct.pack(
            _FORMAT,
            MAGIC,
            VERSION,
            self.flags,
            self.codec,
            self.topic,
            self.step % 2**32,
            self.change,
            self.norm,
        )
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8)

    def as_sent(self, raw: Tensor) -> Header:
        """Return this header with what `write_outcome` wrote into its bytes.

        Args:
            raw: On the host. [HEADER_BYTES], uint8
        """
        _, _, flags, _, _, _, change, norm = struct.unpack(_FORMAT, raw.numpy().tobytes())
        return replace(self, flags=flags, change=change, norm=norm)


def write_outcome(header: Tensor, nonfinite: Tensor, norms: Tensor | None) -> None:
    """Write into a header what encoding has found; nothing is read from the rows' device for it.

    Args:
        header: From `Header.to_tensor`, moved to the rows' device; written. [HEADER_BYTES], uint8
        nonfinite: Whether a row cannot be represented. On the rows' device, [], bool
        norms: Squared norms of the rows' change and of the rows, [2], float64; None where drift is
            not measured. Where they are not finite, full precision passes such rows on: they are
            written as a drift beyond all bounds, and never as old rows.
    """
    if norms is not None:
        is_finite = torch.isfinite(norms.sum())
        told = torch.stack(
            [
                torch.where(is_finite, norms[0], _BEYOND_ALL_BOUNDS),
                torch.where(is_finite, norms[1], 1.0),
            ]
        )
        told.masked_fill_(nonfinite, 0.0)
        header[_NORMS_OFFSET:] = told.view(torch.uint8)
    header[_FLAGS_OFFSET].bitwise_or_(nonfinite.to(torch.uint8) * FLAG_NONFINITE)


@dataclass(frozen=True)
class Received:
    """What the headers of one exchange said.

    Attributes:
        nonfinite: The peers whose rows held Inf or NaN.
        drift: Relative change of all ranks' rows since the epoch before, the receiver's own
            included: the root of the sum of squared changes by the sum of squared norms. The same
            number on every rank. NaN where all rows are zero or drift is not measured.
    """

    nonfinite: list[int]
    drift: float


def topic_of(digest: str, name: str, description: str) -> int:
    """Return the checksum of what both ends of an exchange must agree on.

    Args:
        digest: The partitioning's content hash.
        name: The exchange's name: layer and direction.
        description: The format's.

    Returns:
        A CRC-32.
    """
    return zlib.crc32(f"{digest}|{name}|{description}".encode())


def check_headers(received: Tensor, own: Header, peers: list[int], name: str) -> Received:
    """Check the headers of all messages received in one exchange.

    Args:
        received: Headers by peer. [Q, HEADER_BYTES], uint8
        own: What this rank sent.
        peers: The senders. Q entries.
        name: The exchange's name, for the message.

    Returns:
        What they said.

    Raises:
        ValueError: A header is not what was expected; the text names the peer and the field.
    """
    flat = received.cpu()
    expected = replace(own, flags=own.flags & ~FLAG_NONFINITE)
    difference = torch.bitwise_xor(flat, expected.to_tensor())[:, :_NORMS_OFFSET]
    is_nonfinite = difference[:, _FLAGS_OFFSET] == FLAG_NONFINITE
    difference[is_nonfinite, _FLAGS_OFFSET] = 0
    norms = flat[:, _NORMS_OFFSET:].flatten().clone().view(torch.float64).view(-1, 2)  # [Q, 2]
    is_wrong = difference.any(dim=1) | ~((norms >= 0) & (norms < math.inf)).all(dim=1)
    wrong = torch.nonzero(is_wrong).flatten().tolist()
    if wrong:
        raise ValueError(
            f"'{name}': {_complaint(flat[wrong[0]].numpy().tobytes(), expected)} from rank "
            f"{peers[wrong[0]]}. The ranks run different programs, options or partitions, or the "
            "message was damaged."
        )
    nonfinite = [peers[row] for row in torch.nonzero(is_nonfinite).flatten().tolist()]
    # fsum is exact, so the order in which ranks are added does not matter
    change = math.fsum([own.change, *norms[:, 0].tolist()])
    norm = math.fsum([own.norm, *norms[:, 1].tolist()])
    return Received(nonfinite, math.sqrt(change / norm) if norm > 0 else math.nan)


def _complaint(raw: bytes, expected: Header) -> str:
    """Say which field of a header is wrong."""
    magic, version, flags, codec, topic, step, _, _ = struct.unpack_from(_FORMAT, raw)
    for field, got, wanted in (
        ("magic", magic, MAGIC),
        ("version", version, VERSION),
        ("codec", codec, expected.codec),
        ("topic", topic, expected.topic),
        ("step", step, expected.step % 2**32),
        ("stale flag", flags & FLAG_STALE, expected.flags & FLAG_STALE),
    ):
        if got != wanted:
            return f"expected {field} {wanted!r} in the message header, got {got!r}"
    if flags & ~(FLAG_STALE | FLAG_NONFINITE):
        return "expected zeros in the unused bits of the message header, got others"
    return "expected finite norms of at least 0 in the message header, got others"
