"""What travels between two ranks in one exchange: a header, then rows.

[Note: Message format]
A message to one rank is a number of rows of the codec's width W. The first ceil(16 / W) rows hold
the header, padded with zeros; the others are the codec's rows. Counting in rows lets one alltoall
with fixed splits move all messages, keeps every row addressable, and lifts the 2 GiB limit that
32-bit splits would put on bytes.

| offset | bytes | meaning |
|--------|-------|---------|
| 0      | 4     | magic, `HVSM` |
| 4      | 1     | version, 1 |
| 5      | 1     | flags; bit 0: a row of this exchange held Inf or NaN on the sender |
| 6      | 2     | codec identifier |
| 8      | 4     | CRC-32 of plan digest, layer, direction, width and dtype |
| 12     | 4     | step: exchanges made before under this layer and direction, mod 2^32 |

All integers are little-endian. A header that differs in anything but the flags from what the
receiver itself would send is an error that names the peer, and nothing of its message is used.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

MAGIC: Final = b"HVSM"
VERSION: Final = 1
HEADER_BYTES: Final = 16
FLAG_NONFINITE: Final = 1

_FORMAT: Final = "<4sBBHII"
_FLAGS_OFFSET: Final = 5


def header_rows(row_bytes: int) -> int:
    """Return how many rows of a width a header takes.

    Args:
        row_bytes: The codec's row width, in bytes.

    Returns:
        ceil(16 / row_bytes).
    """
    return -(-HEADER_BYTES // row_bytes)


@dataclass(frozen=True)
class Header:
    """The first bytes of every message of one exchange.

    Attributes:
        codec: The codec's identifier.
        topic: CRC-32 of what both ends must agree on; see `topic_of`.
        step: Exchanges made before under the same name.
        flags: `FLAG_NONFINITE` or 0.
    """

    codec: int
    topic: int
    step: int
    flags: int = 0

    def to_rows(self, row_bytes: int) -> Tensor:
        """Return the header as rows of a width. [header_rows(row_bytes), row_bytes], uint8."""
        raw = struct.pack(
            _FORMAT, MAGIC, VERSION, self.flags, self.codec, self.topic, self.step % 2**32
        )
        padded = bytearray(raw.ljust(header_rows(row_bytes) * row_bytes, b"\0"))
        return torch.frombuffer(padded, dtype=torch.uint8).reshape(-1, row_bytes)


def topic_of(digest: str, name: str, row_bytes: int, dtype: torch.dtype) -> int:
    """Return the checksum of what both ends of an exchange must agree on.

    Args:
        digest: The partitioning's content hash.
        name: The exchange's name: layer and direction.
        row_bytes: Width of a row, in bytes.
        dtype: Of the rows outside the codec.

    Returns:
        A CRC-32.
    """
    return zlib.crc32(f"{digest}|{name}|{row_bytes}|{dtype}".encode())


def check_headers(received: Tensor, expected: Header, peers: list[int], name: str) -> list[int]:
    """Check the headers of all messages received in one exchange.

    Args:
        received: Header rows by peer. [Q, header_rows, row_bytes], uint8
        expected: What this rank sent.
        peers: The senders. Q entries.
        name: The exchange's name, for the message.

    Returns:
        The peers whose rows held Inf or NaN.

    Raises:
        ValueError: A header is not what was expected; the text names the peer and the field.
    """
    flat = received.reshape(len(peers), -1)  # [Q, header_rows * row_bytes]
    plain = replace(expected, flags=0).to_rows(received.shape[-1]).reshape(1, -1)
    difference = torch.bitwise_xor(flat, plain.to(flat.device)).cpu()
    flags = difference[:, _FLAGS_OFFSET].tolist()
    difference[:, _FLAGS_OFFSET] = 0
    wrong = torch.nonzero(difference.any(dim=1)).flatten().tolist()
    wrong += [row for row, value in enumerate(flags) if value & ~FLAG_NONFINITE]
    if wrong:
        peer = peers[wrong[0]]
        raise ValueError(
            f"'{name}': {_complaint(flat[wrong[0]].cpu().numpy().tobytes(), expected)} from rank "
            f"{peer}. The ranks run different programs, options or partitions, or the message was "
            "damaged."
        )
    return [peer for peer, value in zip(peers, flags, strict=True) if value]


def _complaint(raw: bytes, expected: Header) -> str:
    """Say which field of a header is wrong."""
    magic, version, _, codec, topic, step = struct.unpack_from(_FORMAT, raw)
    for field, got, wanted in (
        ("magic", magic, MAGIC),
        ("version", version, VERSION),
        ("codec", codec, expected.codec),
        ("topic", topic, expected.topic),
        ("step", step, expected.step % 2**32),
    ):
        if got != wanted:
            return f"expected {field} {wanted!r} in the message header, got {got!r}"
    return "expected zeros in the unused bits of the message header, got others"
