"""How the rows of one exchange stand in messages.

A codec turns rows into bytes. A *format* turns the rows of one exchange into messages: which codec
each row uses, where headers and rows stand, and back again. Here: every row by one codec.

    CodecFormat     every row by one codec, so that splits count rows

Not here: rows of several widths (`mixed_format.py`), and changes against the receiver's last copy
(`delta_format.py`).

Shapes: P ranks, Q = P - 1 peers, U distinct rows to send, n rows received, F features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ..ops.row_sums import RowSums, add_rows
from .codec import Codec
from .message import HEADER_BYTES, header_rows
from .plan import MessageLayout, Route


class Format(ABC):
    """Rows of one exchange to messages and back.

    An object serves one exchange at a time: `encode`, `write_headers`, and, on what arrived,
    `read_headers` and `decode`. What a format must remember from one exchange to the next it
    changes in `decode` only, so that an exchange that is given up leaves no trace.
    """

    @property
    @abstractmethod
    def identifier(self) -> int:
        """A number that travels in message headers, different for each wire format; 16 bits."""

    @property
    @abstractmethod
    def description(self) -> str:
        """What both ends must agree on beyond the identifier; its checksum travels in headers."""

    @property
    @abstractmethod
    def send_splits(self) -> tuple[int, ...]:
        """Rows of the messages for each rank. P entries."""

    @property
    @abstractmethod
    def recv_splits(self) -> tuple[int, ...]:
        """Rows of the messages from each rank. P entries."""

    @abstractmethod
    def encode(self, rows: Tensor, key: int) -> tuple[Tensor, Tensor]:
        """Encode the rows of the route into messages, their headers left unset.

        Args:
            rows: The rows that the route picks from. [N, F], contiguous
            key: Seed of the rounding, in [0, 2^64). Equal keys give equal bytes.

        Returns:
            The messages [sum(send_splits), width], uint8, and whether any row held something that
            cannot be represented (Inf, NaN, or out of range); see `Codec.encode`.
        """

    @abstractmethod
    def write_headers(self, messages: Tensor, header: Tensor) -> None:
        """Write one header into every message.

        Args:
            messages: From `encode`; written.
            header: On the device of the messages, or on the host. [HEADER_BYTES], uint8
        """

    @abstractmethod
    def read_headers(self, received: Tensor) -> Tensor:
        """Return the header of every message received. [Q, HEADER_BYTES], uint8."""

    @abstractmethod
    def decode(self, received: Tensor, out: Tensor) -> None:
        """Decode the rows of messages.

        Args:
            received: What arrived. [sum(recv_splits), width], uint8
            out: Written, in the order of the route. [n, F], contiguous

        Raises:
            ValueError: The bytes are not what any encoder writes.
        """

    def add(self, received: Tensor, sums: RowSums, out: Tensor) -> None:
        """Decode the rows of messages, and add them to rows of a matrix. Instead of `decode`.

        Args:
            received: What arrived, as for `decode`.
            sums: Which of the rows, in the order of the route, is added to which.
            out: Written, and of no use after an error. [N, F], contiguous

        Raises:
            ValueError: The bytes are not what any encoder writes.
        """
        rows = out.new_empty((len(sums.order), out.shape[1]))
        self.decode(received, rows)
        add_rows(rows, sums, out=out)


class CodecFormat(Format):
    """Every row by one codec. See [Note: Message format] in `horovod_sylvie.halo.message`.

    Args:
        codec: How each row is encoded.
        route: Which rows go where.
        num_features: Elements of a row, F.
        dtype: Of the rows outside the codec.
    """

    def __init__(
        self, codec: Codec, route: Route, *, num_features: int, dtype: torch.dtype
    ) -> None:
        self.codec = codec
        self.route = route
        self.width = codec.row_bytes(num_features, dtype)
        self._layout = MessageLayout.of(route, header_rows(self.width))
        self._description = f"{self.width}|{dtype}"

    def __str__(self) -> str:
        """Name the codec."""
        return str(self.codec)

    @property
    def identifier(self) -> int:
        """See `Format.identifier`: the codec's."""
        return self.codec.identifier

    @property
    def description(self) -> str:
        """See `Format.description`: width and dtype."""
        return self._description

    @property
    def send_splits(self) -> tuple[int, ...]:
        """See `Format.send_splits`."""
        return self._layout.send_splits

    @property
    def recv_splits(self) -> tuple[int, ...]:
        """See `Format.recv_splits`."""
        return self._layout.recv_splits

    def encode(self, rows: Tensor, key: int) -> tuple[Tensor, Tensor]:
        """See `Format.encode`."""
        return self.codec.encode(rows, self.route, self._layout, key)

    def write_headers(self, messages: Tensor, header: Tensor) -> None:
        """See `Format.write_headers`."""
        padded = messages.new_zeros((header_rows(self.width), self.width))
        padded.view(-1)[:HEADER_BYTES] = header
        messages[self._layout.send_header_slots] = padded

    def read_headers(self, received: Tensor) -> Tensor:
        """See `Format.read_headers`."""
        headers = received[self._layout.recv_header_slots]
        return headers.reshape(headers.shape[0], headers.shape[1] * self.width)[:, :HEADER_BYTES]

    def decode(self, received: Tensor, out: Tensor) -> None:
        """See `Format.decode`."""
        self.codec.decode(received, self._layout, out)

    def add(self, received: Tensor, sums: RowSums, out: Tensor) -> None:
        """See `Format.add`."""
        self.codec.add(received, self._layout, sums, out)
