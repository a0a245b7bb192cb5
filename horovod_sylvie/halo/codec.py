"""Codecs: rows to bytes and back.

A codec knows nothing of ranks. It turns rows of features, or of their gradients, into rows of
bytes of a fixed width, so that a row is quantised once and gathered for every receiver, and back.

    FullPrecision   bytes as they are                       exact
    Half            float16 or bfloat16                     rounded to nearest

Not here: those of a few bits per element, `Bits` and `OneBit` (`packed_codec.py`).

Shapes: N rows, n rows picked, F features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from ..ops.row_sums import RowSums, add_rows
from .plan import MessageLayout, Route


class Codec(ABC):
    """Rows to bytes of a fixed width, and back.

    A subclass is a frozen dataclass: a codec holds options and no state, so one object serves any
    number of layers and threads.
    """

    @property
    @abstractmethod
    def identifier(self) -> int:
        """A number that travels in message headers, different for each wire format."""

    @abstractmethod
    def row_bytes(self, num_features: int, dtype: torch.dtype) -> int:
        """Return the width of an encoded row.

        Args:
            num_features: Elements of a row, F.
            dtype: Of the rows outside the codec.

        Returns:
            Width in bytes.
        """

    @abstractmethod
    def encode(
        self, rows: Tensor, route: Route, layout: MessageLayout, key: int
    ) -> tuple[Tensor, Tensor]:
        """Encode the rows of a route into messages, their header rows left unset.

        Args:
            rows: The rows that the route picks from. [N, F], contiguous
            route: Which rows go where.
            layout: Where they stand in the messages.
            key: Seed of the rounding, in [0, 2^64). Equal keys give equal bytes.

        Returns:
            The messages [sum(layout.send_splits), row_bytes], uint8, and whether any row held
            something that this codec cannot represent (Inf, NaN, or out of its range): no
            dimensions, bool, on the device of `rows`, where nobody has waited for it.
        """

    @abstractmethod
    def decode(self, messages: Tensor, layout: MessageLayout, out: Tensor) -> None:
        """Decode the data rows of messages.

        Args:
            messages: What arrived. [sum(layout.recv_splits), row_bytes], uint8
            layout: Where the rows stand.
            out: Written. [n, F], contiguous

        Raises:
            ValueError: The bytes are not what any encoder writes.
        """

    def add(self, messages: Tensor, layout: MessageLayout, sums: RowSums, out: Tensor) -> None:
        """Decode the data rows of messages, and add them to rows of a matrix.

        Args:
            messages: What arrived, as for `decode`.
            layout: Where the rows stand.
            sums: Which of them is added to which.
            out: Written, and of no use after an error. [N, F], contiguous

        Raises:
            ValueError: The bytes are not what any encoder writes.
        """
        rows = out.new_empty((len(layout.recv_row_slots), out.shape[1]))
        self.decode(messages, layout, rows)
        add_rows(rows, sums, out=out)

    def for_gradients(self) -> Codec:
        """Return the codec for the backward direction: this one, unless it is biased."""
        return self

    def for_products(self, num_inputs: int, num_products: int) -> Codec | None:
        """Return the codec for rows times a weight, where they should travel instead of rows.

        Args:
            num_inputs: Elements of a row.
            num_products: Elements of a row times the weight.

        Returns:
            The codec of products, both ways; or None where rows should travel.
        """
        del num_inputs, num_products
        return None


@dataclass(frozen=True)
class FullPrecision(Codec):
    """Bytes as they are: exact, `element_size * F` bytes per row."""

    def for_products(self, num_inputs: int, num_products: int) -> Codec | None:
        """See `Codec.for_products`. Products are as exact as rows, up to rounding."""
        return self if num_products < num_inputs else None

    @property
    def identifier(self) -> int:
        """See `Codec.identifier`."""
        return 0x0000

    def row_bytes(self, num_features: int, dtype: torch.dtype) -> int:
        """See `Codec.row_bytes`."""
        return num_features * dtype.itemsize

    def encode(
        self, rows: Tensor, route: Route, layout: MessageLayout, key: int
    ) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`. Inf and NaN travel as they are; `key` has nothing to round."""
        del route, key
        return _gather(rows, layout.source_slots).view(torch.uint8), _never(rows)

    def decode(self, messages: Tensor, layout: MessageLayout, out: Tensor) -> None:
        """See `Codec.decode`. Every byte string is some row."""
        torch.index_select(messages.view(out.dtype), 0, layout.recv_row_slots, out=out)


@dataclass(frozen=True)
class Half(Codec):
    """Two bytes per element, rounded to nearest.

    Attributes:
        dtype: `torch.float16` (11 significant bits, magnitudes up to 65504; a larger one is an
            error) or `torch.bfloat16` (8 significant bits, any magnitude).
    """

    dtype: torch.dtype = torch.float16

    def __post_init__(self) -> None:
        """Check the option."""
        if self.dtype not in (torch.float16, torch.bfloat16):
            raise ValueError(
                f"Half: expected torch.float16 or torch.bfloat16 for 'dtype', got {self.dtype}."
            )

    def for_products(self, num_inputs: int, num_products: int) -> Codec | None:
        """See `Codec.for_products`. Products lose about as much to rounding as rows do."""
        return self if num_products < num_inputs else None

    @property
    def identifier(self) -> int:
        """See `Codec.identifier`."""
        return 0x0100 if self.dtype == torch.float16 else 0x0101

    def row_bytes(self, num_features: int, dtype: torch.dtype) -> int:
        """See `Codec.row_bytes`."""
        return num_features * self.dtype.itemsize

    def encode(
        self, rows: Tensor, route: Route, layout: MessageLayout, key: int
    ) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`. Rounds to nearest, so `key` is not used."""
        del route, key
        half = _gather(rows, layout.source_slots).to(self.dtype)
        half[layout.send_header_slots] = 0  # they hold row 0, which need not be finite
        return half.view(torch.uint8), ~all_finite(half)

    def decode(self, messages: Tensor, layout: MessageLayout, out: Tensor) -> None:
        """See `Codec.decode`. Every byte string is some row."""
        out.copy_(messages.view(self.dtype).index_select(0, layout.recv_row_slots))


def all_finite(rows: Tensor) -> Tensor:
    """Return whether no element is Inf or NaN.

    Args:
        rows: Floating point, of any shape.

    Returns:
        On the device of `rows`, without waiting for it. No dimensions, bool
    """
    if rows.numel() == 0:
        return ~_never(rows)
    # NaN passes through minimum and maximum. Six times as fast as asking every element. Not both at
    # once, by `aminmax`: torch 2.1 has none for float16.
    return torch.isfinite(torch.stack([rows.amin(), rows.amax()])).all()


def _never(rows: Tensor) -> Tensor:
    return torch.zeros((), dtype=torch.bool, device=rows.device)


def _gather(rows: Tensor, slots: Tensor) -> Tensor:
    """Gather rows; a rank without rows has only header slots to fill."""
    if rows.shape[0] == 0:
        return rows.new_zeros((len(slots), rows.shape[1]))
    return rows.index_select(0, slots)
