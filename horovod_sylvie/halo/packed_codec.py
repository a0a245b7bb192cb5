"""Codecs of a few bits per element, with a header per row; `ops/pack_rows.py` has the format.

    Bits(b)         b = 1, 2, 4, 8 bits per element         unbiased stochastic rounding
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

from abc import abstractmethod
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from ..ops.pack_rows import pack_rows, packed_row_bytes, unpack_rows
from ..ops.row_reports import RowReport
from ..ops.row_sums import RowSums, add_packed_rows
from .codec import Codec
from .plan import MessageLayout, Route

Code = Literal["minmax", "centroid"]

_CODES: Final = ("minmax", "centroid")
_WIDTHS: Final = (1, 2, 4, 8)
_DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16)


class _PackedCodec(Codec):
    """What codecs of a few bits have in common."""

    @property
    @abstractmethod
    def _packing(self) -> tuple[int, Code]:
        """Bits per element, and the code."""

    def row_bytes(self, num_features: int, dtype: torch.dtype) -> int:
        """See `Codec.row_bytes`."""
        if dtype not in _DTYPES:
            raise TypeError(
                f"{self}: expected rows of float32, float16 or bfloat16, got {dtype}. Use "
                "FullPrecision(), or Half(), or train the model in float32."
            )
        bits, _ = self._packing
        return packed_row_bytes(num_features, bits)

    def encode(
        self, rows: Tensor, route: Route, layout: MessageLayout, key: int
    ) -> tuple[Tensor, Tensor]:
        """See `Codec.encode`. Each distinct row is quantised once."""
        bits, code = self._packing
        width = packed_row_bytes(rows.shape[1], bits)
        num_header_rows = layout.send_header_slots.shape[1]
        table = torch.zeros(
            (route.num_unique + num_header_rows, width), dtype=torch.uint8, device=rows.device
        )
        report = pack_rows(
            rows, route.unique_rows, bits=bits, code=code, key=key, out=table[: route.num_unique]
        )
        return table.index_select(0, layout.send_slots), report.found_any

    def decode(self, messages: Tensor, layout: MessageLayout, out: Tensor) -> None:
        """See `Codec.decode`."""
        index, (bits, _) = layout.recv_row_slots, self._packing
        _check_finite(unpack_rows(messages, index, num_features=out.shape[1], bits=bits, out=out))

    def add(self, messages: Tensor, layout: MessageLayout, sums: RowSums, out: Tensor) -> None:
        """See `Codec.add`. Decoded rows are not kept."""
        index, (bits, _) = layout.recv_row_slots, self._packing
        _check_finite(add_packed_rows(messages, index, sums, bits=bits, out=out))

    # [Note: bits of products]
    # A bit for each of 8 products tells less than one for each of 256 inputs: three GCN layers
    # with 8 classes lost a point of accuracy by it. So products get as many bits as still make
    # fewer bytes than the inputs have, and travel only where that is at least twice the bits, or
    # all 8.
    def for_products(self, num_inputs: int, num_products: int) -> Codec | None:
        """See `Codec.for_products`."""
        bits, _ = self._packing
        limit_bytes = packed_row_bytes(num_inputs, bits)
        fitting = [each for each in _WIDTHS if packed_row_bytes(num_products, each) < limit_bytes]
        most = max(fitting, default=0)
        return Bits(most) if most >= min(2 * bits, max(_WIDTHS)) else None


@dataclass(frozen=True)
class Bits(_PackedCodec):
    """A few bits per element: `4 + ceil(bits * F / 8)` bytes per row, unbiased.

    Attributes:
        bits: 1, 2, 4 or 8. More bits cost more bytes and halve the largest error with each bit.
    """

    bits: int

    def __post_init__(self) -> None:
        """Check the option."""
        if type(self.bits) is not int or self.bits not in _WIDTHS:
            raise ValueError(f"Bits: expected one of {_WIDTHS} for 'bits', got {self.bits!r}.")

    @property
    def identifier(self) -> int:
        """See `Codec.identifier`."""
        return 0x0200 + self.bits

    @property
    def _packing(self) -> tuple[int, Code]:
        return self.bits, "minmax"


@dataclass(frozen=True)
class OneBit(_PackedCodec):
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

    def for_gradients(self) -> Codec:
        """Return the unbiased one-bit codec."""
        return OneBit("minmax")

    @property
    def _packing(self) -> tuple[int, Code]:
        return 1, self.code


def _check_finite(report: RowReport) -> None:
    if report.num_nonfinite > 0:  # the sender would have said so, and this would not be decoded
        raise ValueError(
            "decode: expected finite rows in 'messages', got row "
            f"{report.first_nonfinite_row} marked as Inf or NaN. The message was damaged."
        )
