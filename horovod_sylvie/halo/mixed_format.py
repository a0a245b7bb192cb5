"""Rows of several widths in one exchange: 1, 2, 4 or 8 bits, as each row's table says.

The rows of one width, a *class*, are a route of their own, and travel by that width's codec. A
message to one rank, for F features and codecs of `packed_codec.py`, where n_b of the rows for that
rank have b bits:

| offset           | bytes                       | meaning                                       |
|------------------|-----------------------------|-----------------------------------------------|
| 0                | HEADER_BYTES                | header, see `horovod_sylvie.halo.message`     |
| HEADER_BYTES     | n_1 * (4 + ceil(F / 8))     | rows of 1 bit, in the order of the route      |
| then             | n_2 * (4 + ceil(2 F / 8))   | rows of 2 bits, likewise                      |
| then             | n_4 * (4 + ceil(4 F / 8))   | rows of 4 bits, likewise                      |
| then             | n_8 * (4 + F)               | rows of 8 bits, likewise                      |

Rows have no common width, so messages are one column of bytes, and splits count bytes: at most
2^31 - 1 of them in all, as splits have 32 bits.

Both ends lay out a message by their own copy of the table. Tables travel when bits are planned
(`bit_tables.py`), and the number of the plan is part of every header's checksum, so ranks that hold
tables of different plans refuse each other's messages.

Shapes: P ranks, Q = P - 1 peers, U distinct rows to send, n rows received, F features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Final

import torch
from torch import Tensor

from .bit_allocation import BIT_WIDTHS, check_bits
from .codec import Codec
from .format import Format
from .message import HEADER_BYTES
from .plan import MessageLayout, Route

_MAX_BYTES: Final = 2**31 - 1


class MixedFormat(Format):
    """Each row by the codec of its own bits.

    Args:
        route: Which rows go where.
        codecs: The codec for each of 1, 2, 4 and 8 bits.
        sent: Bits of each distinct row to send. [U], uint8
        received: Bits of each row received, in the order of the route. [n], uint8
        version: Number of the plan that the tables belong to, the same on every rank.
        num_features: Elements of a row, F.
        dtype: Of the rows outside the codecs.

    Raises:
        ValueError: `codecs`, `sent` or `received` is not as above, or a rank's messages are larger
            than 2^31 - 1 bytes.
    """

    def __init__(
        self,
        route: Route,
        *,
        codecs: Mapping[int, Codec],
        sent: Tensor,
        received: Tensor,
        version: int,
        num_features: int,
        dtype: torch.dtype,
    ) -> None:
        if sorted(codecs) != list(BIT_WIDTHS):
            raise ValueError(
                f"MixedFormat: expected a codec for each of {BIT_WIDTHS} for 'codecs', got "
                f"{sorted(codecs)}."
            )
        check_bits("MixedFormat", "sent", sent, route.num_unique)
        check_bits("MixedFormat", "received", received, sum(route.recv_splits))
        self._classes = [
            _Class.of(
                route,
                sent == bits,
                received == bits,
                codecs[bits],
                codecs[bits].row_bytes(num_features, dtype),
            )
            for bits in BIT_WIDTHS
        ]
        device = route.expand.device
        self._send = _Sections.of(route.rank, [each.sent_bytes for each in self._classes], device)
        self._recv = _Sections.of(
            route.rank, [each.received_bytes for each in self._classes], device
        )
        identifiers = ",".join(f"{codecs[bits].identifier:#06x}" for bits in BIT_WIDTHS)
        self._description = f"bits {version}|{num_features}|{dtype}|{identifiers}"

    def __str__(self) -> str:
        """Name the codecs."""
        return "1, 2, 4 or 8 bits per element, by row"

    @property
    def identifier(self) -> int:
        """See `Format.identifier`."""
        return 0x0400

    @property
    def description(self) -> str:
        """See `Format.description`: version of the tables, F, dtype and the codecs."""
        return self._description

    @property
    def send_splits(self) -> tuple[int, ...]:
        """See `Format.send_splits`: a row of messages is one byte."""
        return self._send.splits

    @property
    def recv_splits(self) -> tuple[int, ...]:
        """See `Format.recv_splits`: a row of messages is one byte."""
        return self._recv.splits

    def encode(self, rows: Tensor, key: int) -> tuple[Tensor, Tensor]:
        """See `Format.encode`. The messages are one column, [sum(send_splits), 1].

        All classes get the same key. A codec's random numbers are those of the key and the row's
        number in `rows`, and no row is in two classes, so no random number is used twice; and a
        row has the same bytes as where every row has its bits.
        """
        headers = torch.zeros(sum(self._send.headers), dtype=torch.uint8, device=rows.device)
        columns = [headers.split(self._send.headers)]
        nonfinite = torch.zeros((), dtype=torch.bool, device=rows.device)
        for each in self._classes:
            encoded, bad = each.codec.encode(rows, each.route, each.layout, key)
            columns.append(encoded.view(-1).split(each.sent_bytes))
            nonfinite = nonfinite | bad
        sections = chain.from_iterable(zip(*columns, strict=True))
        return torch.cat(list(sections))[:, None], nonfinite

    def write_headers(self, messages: Tensor, header: Tensor) -> None:
        """See `Format.write_headers`."""
        messages[self._send.header_slots, 0] = header.to(messages.device)

    def read_headers(self, received: Tensor) -> Tensor:
        """See `Format.read_headers`."""
        return received[self._recv.header_slots, 0]

    def decode(self, received: Tensor, out: Tensor) -> None:
        """See `Format.decode`."""
        sections = received.view(-1).split(self._recv.sizes)
        for number, each in enumerate(self._classes, start=1):
            encoded = torch.cat(sections[number :: len(self._classes) + 1])
            rows = out.new_empty((len(each.places), out.shape[1]))
            each.codec.decode(encoded.view(-1, each.width), each.layout, rows)
            out.index_copy_(0, each.places, rows)


@dataclass(frozen=True)
class _Class:
    """The rows of one width.

    Attributes:
        codec: How they are encoded.
        width: Of an encoded row, in bytes.
        route: The route, of these rows only.
        layout: Of their messages, without headers.
        places: Where they stand among all rows received.
        sent_bytes: Bytes to each rank. P entries.
        received_bytes: Bytes from each rank. P entries.
    """

    codec: Codec
    width: int
    route: Route
    layout: MessageLayout
    places: Tensor
    sent_bytes: tuple[int, ...]
    received_bytes: tuple[int, ...]

    @staticmethod
    def of(route: Route, sent: Tensor, received: Tensor, codec: Codec, width: int) -> _Class:
        """Pick the rows where `sent` [U] and `received` [n] are true."""
        unique = torch.nonzero(sent).flatten()
        position = torch.cumsum(sent, 0) - 1  # [U], among the rows of this class
        leaves = sent[route.expand]
        part = Route(
            route.rank,
            unique if route.unique_rows is None else route.unique_rows[unique],
            position[route.expand[leaves]],
            _count_by_rank(leaves, route.send_splits),
            _count_by_rank(received, route.recv_splits),
        )
        return _Class(
            codec=codec,
            width=width,
            route=part,
            layout=MessageLayout.of(part, 0),
            places=torch.nonzero(received).flatten(),
            sent_bytes=tuple(width * rows for rows in part.send_splits),
            received_bytes=tuple(width * rows for rows in part.recv_splits),
        )


def _count_by_rank(mask: Tensor, splits: Sequence[int]) -> tuple[int, ...]:
    """Count the true entries of each rank's stretch of a mask."""
    ranks = torch.repeat_interleave(torch.arange(len(splits)), torch.tensor(splits))
    return tuple(torch.bincount(ranks[mask.cpu()], minlength=len(splits)).tolist())


@dataclass(frozen=True)
class _Sections:
    """Where the sections of all messages in one direction begin and end.

    A rank's own message has sections of no bytes, so that every rank has the same number of them.

    Attributes:
        headers: Bytes of each rank's header. P entries.
        sizes: Bytes of all sections, message by message: header, then classes. 5 P entries.
        splits: Bytes of each message. P entries.
        header_slots: Positions of the headers' bytes. [Q, HEADER_BYTES], int64
    """

    headers: tuple[int, ...]
    sizes: tuple[int, ...]
    splits: tuple[int, ...]
    header_slots: Tensor

    @staticmethod
    def of(rank: int, columns: Sequence[tuple[int, ...]], device: torch.device) -> _Sections:
        """Lay out messages with so many bytes of each class for each rank."""
        num_ranks = len(columns[0])
        headers = tuple(0 if peer == rank else HEADER_BYTES for peer in range(num_ranks))
        messages = list(zip(headers, *columns, strict=True))
        splits = tuple(map(sum, messages))
        if sum(splits) > _MAX_BYTES:
            raise ValueError(
                f"MixedFormat: expected at most {_MAX_BYTES} bytes in the messages of rank {rank} "
                f"in one exchange, got {sum(splits)}. Use fewer bits, more ranks, or one codec for "
                "all rows, whose splits count rows."
            )
        starts = torch.tensor([0, *accumulate(splits[:-1])])
        starts = starts[torch.tensor(headers) > 0]  # of the messages to, or from, others
        slots = starts[:, None] + torch.arange(HEADER_BYTES)
        return _Sections(headers, tuple(chain(*messages)), splits, slots.to(device))
