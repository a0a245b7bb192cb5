"""Codecs: rows to bytes and back.

A codec knows nothing of ranks. It turns rows of features, or of their gradients, into rows of
bytes of a fixed width, so that a row is quantised once and gathered for every receiver, and back.

    FullPrecision   bytes as they are                       exact
    Half            float16 or bfloat16                     rounded to nearest
    Bits(b)         b = 1, 2, 4, 8 bits per element          unbiased stochastic rounding
    OneBit          one bit per element; "minmax" is Bits(1), "centroid" sends two row means

Source: Zhang et al., "Boosting Distributed Full-graph GNN Training with Asynchronous One-bit
Communication" (2023): per-row minimum and range, unbiased stochastic rounding. Ours differ in what
the row header holds (minimum and range in bfloat16, rounded outwards, where the paper's code sends
an inverse range in float16 that overflows on narrow rows), and in the centroid code.

There is no error feedback here: it is sound for what is summed over time, such as gradients of
weights, and diverges on activations, which are read anew each step.

Shapes: N rows, n rows picked, F features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import torch
from torch import Tensor

from ..ops.pack_rows import pack_rows, packed_row_bytes, unpack_rows
from .plan import MessageLayout, Route

Code = Literal["minmax", "centroid"]

_CODES: Final = ("minmax", "centroid")
_WIDTHS: Final = (1, 2, 4, 8)


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
    ) -> tuple[Tensor, bool]:
        """Encode the rows of a route into messages, their header rows left unset.

        Args:
            rows: The rows that the route picks from. [N, F], contiguous
            route: Which rows go where.
            layout: Where they stand in the messages.
            key: Seed of the rounding, in [0, 2^64). Equal keys give equal bytes.

        Returns:
            The messages [sum(layout.send_splits), row_bytes], uint8, and whether any row held
            something that this codec cannot represent (Inf, NaN, or out of its range).
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

    def for_gradients(self) -> Codec:
        """Return the codec for the backward direction: this one, unless it is biased."""
        return self


@dataclass(frozen=True)
class FullPrecision(Codec):
    """Bytes as they are: exact, `element_size * F` bytes per row."""

    @property
    def identifier(self) -> int:
        """See `Codec.identifier`."""
        return 0x0000

    def row_bytes(self, num_features: int, dtype: torch.dtype) -> int:
        """See `Codec.row_bytes`."""
        return num_features * dtype.itemsize

    def encode(
        self, rows: Tensor, route: Route, layout: MessageLayout, key: int
    ) -> tuple[Tensor, bool]:
        """See `Codec.encode`. Inf and NaN travel as they are; `key` has nothing to round."""
        del route, key
        return _gather(rows, layout.source_slots).view(torch.uint8), False

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

    @property
    def identifier(self) -> int:
        """See `Codec.identifier`."""
        return 0x0100 if self.dtype == torch.float16 else 0x0101

    def row_bytes(self, num_features: int, dtype: torch.dtype) -> int:
        """See `Codec.row_bytes`."""
        return num_features * self.dtype.itemsize

    def encode(
        self, rows: Tensor, route: Route, layout: MessageLayout, key: int
    ) -> tuple[Tensor, bool]:
        """See `Codec.encode`. Rounds to nearest, so `key` is not used."""
        del route, key
        half = _gather(rows, layout.source_slots).to(self.dtype)
        half[layout.send_header_slots] = 0  # they hold row 0, which need not be finite
        return half.view(torch.uint8), not bool(torch.isfinite(half).all())

    def decode(self, messages: Tensor, layout: MessageLayout, out: Tensor) -> None:
        """See `Codec.decode`. Every byte string is some row."""
        out.copy_(messages.view(self.dtype).index_select(0, layout.recv_row_slots))


@dataclass(frozen=True)
class Bits(Codec):
    """A few bits per element: `4 + ceil(bits * F / 8)` bytes per row, unbiased.

    Attributes:
        bits: 1, 2, 4 or 8. More bits cost more bytes and halve the largest error with each bit.
    """

    bits: int
    code: ClassVar[Code] = "minmax"

    def __post_init__(self) -> None:
        """Check the option."""
        if type(self.bits) is not int or self.bits not in _WIDTHS:
            raise ValueError(f"Bits: expected one of {_WIDTHS} for 'bits', got {self.bits!r}.")

    @property
    def identifier(self) -> int:
        """See `Codec.identifier`."""
        return 0x0200 + self.bits

    def row_bytes(self, num_features: int, dtype: torch.dtype) -> int:
        """See `Codec.row_bytes`."""
        return packed_row_bytes(num_features, self.bits)

    def encode(
        self, rows: Tensor, route: Route, layout: MessageLayout, key: int
    ) -> tuple[Tensor, bool]:
        """See `Codec.encode`. Each distinct row is quantised once."""
        return _encode_packed(rows, route, layout, key, bits=self.bits, code=self.code)

    def decode(self, messages: Tensor, layout: MessageLayout, out: Tensor) -> None:
        """See `Codec.decode`."""
        _decode_packed(messages, layout, out, bits=self.bits)


@dataclass(frozen=True)
class OneBit(Codec):
    """One bit per element: `4 + ceil(F / 8)` bytes per row.

    Attributes:
        code: "minmax" rounds each element to its row's minimum or maximum, unbiased, as in the
            paper. "centroid" sends the mean below and the mean above the row's mean: about half
            the error at the same bytes, but biased, so gradients still travel as "minmax".
    """

    code: Code = "minmax"

    def __post_init__(self) -> None:
        """Check the option."""
        if self.code not in _CODES:
            raise ValueError(f"OneBit: expected one of {_CODES} for 'code', got {self.code!r}.")

    @property
    def identifier(self) -> int:
        """See `Codec.identifier`."""
        return 0x0201 if self.code == "minmax" else 0x0301

    def row_bytes(self, num_features: int, dtype: torch.dtype) -> int:
        """See `Codec.row_bytes`."""
        return packed_row_bytes(num_features, 1)

    def encode(
        self, rows: Tensor, route: Route, layout: MessageLayout, key: int
    ) -> tuple[Tensor, bool]:
        """See `Codec.encode`. Each distinct row is quantised once."""
        return _encode_packed(rows, route, layout, key, bits=1, code=self.code)

    def decode(self, messages: Tensor, layout: MessageLayout, out: Tensor) -> None:
        """See `Codec.decode`."""
        _decode_packed(messages, layout, out, bits=1)

    def for_gradients(self) -> Codec:
        """Return the unbiased one-bit codec."""
        return OneBit("minmax")


def _gather(rows: Tensor, slots: Tensor) -> Tensor:
    """Gather rows; a rank without rows has only header slots to fill."""
    if rows.shape[0] == 0:
        return rows.new_zeros((len(slots), rows.shape[1]))
    return rows.index_select(0, slots)


def _encode_packed(
    rows: Tensor, route: Route, layout: MessageLayout, key: int, *, bits: int, code: Code
) -> tuple[Tensor, bool]:
    """Quantise each distinct row once, then gather the packed rows for every receiver."""
    width = packed_row_bytes(rows.shape[1], bits)
    num_header_rows = layout.send_header_slots.shape[1]
    table = torch.zeros(
        (route.num_unique + num_header_rows, width), dtype=torch.uint8, device=rows.device
    )
    report = pack_rows(
        rows, route.unique_rows, bits=bits, code=code, key=key, out=table[: route.num_unique]
    )
    return table.index_select(0, layout.send_slots), report.num_nonfinite > 0


def _decode_packed(messages: Tensor, layout: MessageLayout, out: Tensor, *, bits: int) -> None:
    report = unpack_rows(
        messages, layout.recv_row_slots, num_features=out.shape[1], bits=bits, out=out
    )
    if report.num_nonfinite > 0:  # the sender would have said so, and this would not be decoded
        raise ValueError(
            "decode: expected finite rows in 'messages', got row "
            f"{report.first_nonfinite_row} marked as Inf or NaN. The message was damaged."
        )
