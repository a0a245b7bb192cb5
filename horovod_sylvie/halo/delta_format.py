"""Changes in messages, and the stream of exchanges that keeps the copies of both ends equal.

Every exchange of a stream is one of two:

    refresh   the rows, in full precision; the copies are set to them
    change    the rows minus the sender's copy, by the inner codec; what the bytes decode to is
              added to the copies

Both ends must hold the same copy, bit for bit, or their difference would stay. So the sender adds
not the change itself but what it decodes from its own messages, by the routine that the receiver
uses, and both add in the same dtype. Copies of half-precision rows are float32: the codes of small
changes would be lost in the rounding of the sum otherwise.

Messages are those of `CodecFormat`, of full precision or of the inner codec. The number of
exchanges since the refresh is part of a change's checksum in headers, so ends that do not agree on
it refuse each other's messages.

Shapes: P ranks, Q = P - 1 peers, N rows, U distinct rows to send, n rows received, F features.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from .codec import FullPrecision, Half, all_finite
from .delta import Delta
from .delta_copies import Copies, State, copies_of, state_of
from .format import CodecFormat, Format
from .message import header_rows
from .plan import MessageLayout, Route

_REFRESH: Final = 0x0500
_CHANGE: Final = 0x8000  # is set beside the bits of the inner codec's identifier


class DeltaStream:
    """One layer's features on this rank, as they travel step after step.

    All ranks make their exchanges together, and `reset` and `load` between the same two.

    Args:
        delta: How changes are encoded, and how often rows are refreshed.
        route: Which rows go where.
        num_features: Elements of a row, F.
        dtype: Of the rows.

    Attributes:
        delta, route: As given.
        copies: What both ends hold; None before the first exchange.
        dtype: Of the copies.

    Raises:
        ValueError: The codec may enlarge changes of so many features.
    """

    def __init__(
        self, delta: Delta, route: Route, *, num_features: int, dtype: torch.dtype
    ) -> None:
        delta.check(num_features)
        self.delta = delta
        self.copies: Copies | None = None
        self.dtype = torch.float32 if dtype.itemsize == 2 else dtype
        self.route = route
        self._num_features = num_features
        table = replace(
            route, unique_rows=torch.arange(route.num_unique, device=route.expand.device)
        )
        self._rows = CodecFormat(FullPrecision(), route, num_features=num_features, dtype=dtype)
        self._changes = CodecFormat(delta.codec, table, num_features=num_features, dtype=self.dtype)
        self._distinct = _layout_of_distinct_rows(table, header_rows(self._changes.width))

    def format(self) -> Format:
        """Return the format of the next exchange.

        Returns:
            A refresh where there is no copy or it was refreshed `refresh_every` exchanges ago,
            else a change. The stream moves on in its `decode`; one that is given up before leaves
            no trace.
        """
        if self.copies is None or self.copies.exchanges >= self.delta.refresh_every:
            return _Refresh(self, self._rows)
        return _Change(self, self._changes, self.copies)

    def reset(self) -> None:
        """Drop the copies: the next exchange is a refresh. All ranks do, or none."""
        self.copies = None

    def state(self) -> dict[str, Tensor | int]:
        """Return what a checkpoint needs; see `state_of`."""
        return state_of(self.copies)

    def load(self, state: State) -> None:
        """Take over a state. All ranks load what they saved at the same step.

        Args:
            state: From `state`, on this rank of the same partition. Tensors are copied.

        Raises:
            ValueError: It does not fit; nothing is changed then.
        """
        self.copies = copies_of(
            state,
            num_sent=self.route.num_unique,
            num_received=sum(self.route.recv_splits),
            num_features=self._num_features,
            dtype=self.dtype,
            device=self.route.expand.device,
        )

    def distinct_rows(self, rows: Tensor) -> Tensor:
        """Return a copy of the rows to send, each once, in the dtype of the copies.

        Args:
            rows: What the route picks from. [N, F]

        Returns:
            The rows. [U, F]
        """
        unique = self.route.unique_rows
        picked = rows.clone() if unique is None else rows.index_select(0, unique)
        return picked.to(self.dtype)

    def decode_own(self, messages: Tensor, out: Tensor) -> None:
        """Decode the changes in this rank's own messages, as the receivers will.

        Args:
            messages: What this rank sends. [sum(send_splits), width], uint8
            out: Written, each distinct row once. [U, F]
        """
        self.delta.codec.decode(messages, self._distinct, out)


class _StreamFormat(Format):
    """One exchange of a stream: the messages of a `CodecFormat`, and what they do to the copies."""

    def __init__(self, stream: DeltaStream, inner: CodecFormat) -> None:
        self._stream = stream
        self._inner = inner
        self._before = stream.copies
        self._sent: Tensor | None = None  # the receivers' copies after this exchange, once encoded

    def __str__(self) -> str:
        return str(self._stream.delta)

    @property
    def send_splits(self) -> tuple[int, ...]:
        """See `Format.send_splits`."""
        return self._inner.send_splits

    @property
    def recv_splits(self) -> tuple[int, ...]:
        """See `Format.recv_splits`."""
        return self._inner.recv_splits

    def write_headers(self, messages: Tensor, header: Tensor) -> None:
        """See `Format.write_headers`."""
        self._inner.write_headers(messages, header)

    def read_headers(self, received: Tensor) -> Tensor:
        """See `Format.read_headers`."""
        return self._inner.read_headers(received)

    def decode(self, received: Tensor, out: Tensor) -> None:
        """See `Format.decode`. The copies move on, once all is decoded.

        Raises:
            ValueError: The bytes are not what any encoder writes.
            RuntimeError: The copies are not those with which this was encoded, or nothing was.
        """
        if self._sent is None or self._stream.copies is not self._before:
            raise RuntimeError(
                "decode: expected an exchange that was encoded against the stream's copies, got "
                "one that was not encoded, or is outdated. Finish one exchange before the next one "
                "begins, and before reset() or load()."
            )
        self._stream.copies = self._advance(self._sent, received, out)

    @abstractmethod
    def _advance(self, sent: Tensor, received: Tensor, out: Tensor) -> Copies:
        """Decode what arrived into `out`, and return the copies after the exchange.

        Args:
            sent: The receivers' copies after the exchange. [U, F]
            received: What arrived. [sum(recv_splits), width], uint8
            out: Written. [n, F]
        """


class _Refresh(_StreamFormat):
    """Rows in full precision. Inf and NaN are refused, as they would stay in the copies."""

    @property
    def identifier(self) -> int:
        """See `Format.identifier`."""
        return _REFRESH

    @property
    def description(self) -> str:
        """See `Format.description`. It matters to no one what the copies were."""
        return f"refresh|{self._inner.description}"

    def encode(self, rows: Tensor, key: int) -> tuple[Tensor, Tensor]:
        """See `Format.encode`. Rows with Inf or NaN cannot be represented here."""
        self._sent = self._stream.distinct_rows(rows)
        messages, _ = self._inner.encode(rows, key)
        return messages, ~all_finite(self._sent)

    def _advance(self, sent: Tensor, received: Tensor, out: Tensor) -> Copies:
        self._inner.decode(received, out)
        _check_finite(out, "a refresh")
        # A copy, as the caller may write to `out`
        return Copies(sent, out.to(self._stream.dtype, copy=True), exchanges=1)


class _Change(_StreamFormat):
    """What has changed since the copies that both ends hold."""

    def __init__(self, stream: DeltaStream, inner: CodecFormat, before: Copies) -> None:
        super().__init__(stream, inner)
        self._copies = before

    @property
    def identifier(self) -> int:
        """See `Format.identifier`: the inner codec's, and the bit that says: a change."""
        return _CHANGE | self._inner.codec.identifier

    @property
    def description(self) -> str:
        """See `Format.description`: the codec, and how many exchanges made the copies."""
        inner = f"{self._inner.codec.identifier}|{self._inner.description}"
        return f"change {self._copies.exchanges}|{inner}"

    def encode(self, rows: Tensor, key: int) -> tuple[Tensor, Tensor]:
        """See `Format.encode`."""
        changes = self._stream.distinct_rows(rows).sub_(self._copies.sent)
        messages, nonfinite = self._inner.encode(changes, key)
        if isinstance(self._inner.codec, FullPrecision):  # it would pass Inf and NaN on
            nonfinite = ~all_finite(changes)
        self._sent = None
        if not nonfinite:  # otherwise peers do not decode these messages either
            self._stream.decode_own(messages, changes)
            self._sent = changes.add_(self._copies.sent)
        return messages, nonfinite

    def _advance(self, sent: Tensor, received: Tensor, out: Tensor) -> Copies:
        copy = self._copies.received
        changes = out if out.dtype == copy.dtype else torch.empty_like(copy)
        self._inner.decode(received, changes)
        if isinstance(self._inner.codec, (FullPrecision, Half)):  # they decode any bytes
            _check_finite(changes, "a change")
        copy.add_(changes)  # nothing can fail from here on
        out.copy_(copy)
        return Copies(sent, copy, self._copies.exchanges + 1)


def _check_finite(rows: Tensor, what: str) -> None:
    """Refuse Inf and NaN, which would stay in the copies and of which the sender would have said.

    Raises:
        ValueError: A row holds one.
    """
    if not all_finite(rows):
        raise ValueError(
            f"decode: expected finite rows in {what}, got Inf or NaN. The message was damaged."
        )


def _layout_of_distinct_rows(route: Route, num_header_rows: int) -> MessageLayout:
    """Lay out what this rank sends as if it had received it, each distinct row once.

    Args:
        route: The rows that travel.
        num_header_rows: How many rows of a message its header takes.

    Returns:
        A layout to decode a rank's own messages with, in the order of `unique_rows`.
    """
    layout = MessageLayout.of(route, num_header_rows)
    is_row = layout.send_slots < route.num_unique
    slots = torch.empty(route.num_unique, dtype=torch.int64, device=layout.send_slots.device)
    # Whichever copy of a row is last: all of them are the same bytes
    slots[layout.send_slots[is_row]] = torch.nonzero(is_row).flatten()
    return replace(
        layout,
        recv_header_slots=layout.send_header_slots,
        recv_row_slots=slots,
        recv_splits=layout.send_splits,
    )
