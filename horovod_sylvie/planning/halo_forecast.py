"""What halo exchanges would send and take per epoch, by way of encoding rows.

An exchange is an alltoall that is over when the busiest rank has sent and received everything:
links carry both directions at once. Nothing hides it: rows are encoded, travel, and are decoded
one after the other. The rows of layer 0, the features, are fetched once, in full precision; every
further layer sends its input forward and gradients backward, along the same rows reversed.

Not here: how many bytes a row takes (`halo.codec`), and how fast it is encoded; both are given.

Shapes: P ranks, F elements of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from .link_model import LinkModel
from .plan import WORTHWHILE_GAIN

Direction = Literal["features", "forward", "backward"]


@dataclass(frozen=True)
class HaloRows:
    """The rows of one exchange.

    Attributes:
        sent: By each rank, a row counted once per receiver. P numbers
        received: By each rank. P numbers
    """

    sent: tuple[int, ...]
    received: tuple[int, ...]

    def reversed(self) -> HaloRows:
        """Return the rows of the other direction."""
        return HaloRows(self.received, self.sent)


@dataclass(frozen=True)
class RowFormat:
    """How rows travel, and what that costs a rank.

    Attributes:
        name: For tables.
        row_bytes: Returns the bytes of an encoded row of F elements.
        header_rows: Returns how many rows of a number of bytes a message's header takes.
        encode_s_per_element: Seconds to encode, per element.
        decode_s_per_element: Seconds to decode, per element.
    """

    name: str
    row_bytes: Callable[[int], int]
    header_rows: Callable[[int], int]
    encode_s_per_element: float = 0.0
    decode_s_per_element: float = 0.0


@dataclass(frozen=True)
class ExchangeForecast:
    """One exchange.

    Attributes:
        layer: Number of the layer.
        direction: "features", "forward" or "backward".
        width: Elements of a row, F.
        nbytes: What all ranks send, headers included.
        link_s: Seconds on the link.
        codec_s: Seconds of encoding and decoding, on the rank that has most to do.
    """

    layer: int
    direction: Direction
    width: int
    nbytes: int
    link_s: float
    codec_s: float

    @property
    def seconds(self) -> float:
        """How long the exchange takes."""
        return self.link_s + self.codec_s


@dataclass(frozen=True)
class HaloForecast:
    """The exchanges of one epoch, with rows in one format.

    Attributes:
        name: Of the format.
        exchanges: By layer; forward, then backward.
    """

    name: str
    exchanges: tuple[ExchangeForecast, ...]

    @property
    def nbytes(self) -> int:
        """What all ranks send in an epoch."""
        return sum(each.nbytes for each in self.exchanges)

    @property
    def seconds(self) -> float:
        """How long an epoch's exchanges take."""
        return sum(each.seconds for each in self.exchanges)

    def pays(self, full_precision: HaloForecast) -> bool:
        """Return whether this saves enough of what full precision takes."""
        return full_precision.seconds > WORTHWHILE_GAIN * self.seconds


def forecast_epoch(
    rows: HaloRows, widths: Sequence[int], row_format: RowFormat, link: LinkModel
) -> HaloForecast:
    """Predict the exchanges of one epoch of training.

    Args:
        rows: Of the forward direction.
        widths: Elements of the input's rows of each layer after layer 0.
        row_format: How rows travel, in both directions.
        link: Costs between P ranks.
    """
    return HaloForecast(
        row_format.name,
        tuple(
            forecast_exchange(each, layer, direction, width, row_format, link)
            for layer, width in enumerate(widths, start=1)
            for direction, each in _directions(rows)
        ),
    )


def forecast_exchange(
    rows: HaloRows,
    layer: int,
    direction: Direction,
    width: int,
    row_format: RowFormat,
    link: LinkModel,
) -> ExchangeForecast:
    """Predict one exchange.

    Args:
        rows: That travel in this direction.
        layer: Number of the layer.
        direction: Of the exchange.
        width: Elements of a row, F.
        row_format: How the rows travel.
        link: Costs between P ranks, at least 2.
    """
    num_peers = link.num_ranks - 1
    row_bytes = row_format.row_bytes(width)
    header_bytes = num_peers * row_format.header_rows(row_bytes) * row_bytes
    busiest = max(*rows.sent, *rows.received) * row_bytes + header_bytes
    # A link model counts a rank's share for itself, which these messages do not have
    link_s = link.alltoall.seconds(busiest * link.num_ranks / num_peers)
    codec_s = width * max(
        sent * row_format.encode_s_per_element + received * row_format.decode_s_per_element
        for sent, received in zip(rows.sent, rows.received, strict=True)
    )
    nbytes = sum(rows.sent) * row_bytes + link.num_ranks * header_bytes
    return ExchangeForecast(layer, direction, width, nbytes, link_s, codec_s)


def _directions(rows: HaloRows) -> tuple[tuple[Direction, HaloRows], ...]:
    return (("forward", rows), ("backward", rows.reversed()))
