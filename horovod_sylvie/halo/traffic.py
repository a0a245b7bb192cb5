"""Bytes of halo traffic, counted where they are sent, and the seconds that it takes this rank.

The counts are of this rank's messages to other ranks, headers included: what is handed to the
communicator, not an estimate. Horovod's own framing and coordination are not in them. Seconds are
those of the thread that trains; where rows are on a GPU, encoding and decoding end later than the
calls that are timed, and a wait may begin earlier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Direction = Literal["features", "forward", "backward", "evaluation"]


@dataclass(frozen=True)
class Traffic:
    """What was sent under one layer and direction, or a sum of such.

    Attributes:
        num_exchanges: Collective exchanges made.
        bytes_sent: Bytes sent to other ranks.
        bytes_full_precision: What the same exchanges send with `FullPrecision`.
    """

    num_exchanges: int = 0
    bytes_sent: int = 0
    bytes_full_precision: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        """Return the sum, field by field."""
        return Traffic(
            self.num_exchanges + other.num_exchanges,
            self.bytes_sent + other.bytes_sent,
            self.bytes_full_precision + other.bytes_full_precision,
        )

    def __sub__(self, other: Traffic) -> Traffic:
        """Return the difference, field by field: what was sent since `other` was read."""
        return Traffic(
            self.num_exchanges - other.num_exchanges,
            self.bytes_sent - other.bytes_sent,
            self.bytes_full_precision - other.bytes_full_precision,
        )


@dataclass(frozen=True)
class ExchangeTimes:
    """What exchanges took this rank.

    Attributes:
        encoding_s: Seconds spent turning rows into messages.
        waiting_s: Seconds spent waiting for the peers' messages, behind whatever overlapped.
        decoding_s: Seconds spent turning messages into rows.
    """

    encoding_s: float = 0.0
    waiting_s: float = 0.0
    decoding_s: float = 0.0

    def __add__(self, other: ExchangeTimes) -> ExchangeTimes:
        """Return the sum, field by field."""
        return ExchangeTimes(
            self.encoding_s + other.encoding_s,
            self.waiting_s + other.waiting_s,
            self.decoding_s + other.decoding_s,
        )

    def __sub__(self, other: ExchangeTimes) -> ExchangeTimes:
        """Return the difference, field by field: what it took since `other` was read."""
        return ExchangeTimes(
            self.encoding_s - other.encoding_s,
            self.waiting_s - other.waiting_s,
            self.decoding_s - other.decoding_s,
        )


class TrafficLedger:
    """Traffic by layer and direction, and times by direction.

    Directions: "features" (the input of the first layer, fetched once), "forward" and "backward"
    (training), "evaluation" (always full precision).
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[str, Direction], Traffic] = {}
        self._times: dict[Direction, ExchangeTimes] = {}

    def record(
        self, layer: str, direction: Direction, bytes_sent: int, bytes_full_precision: int
    ) -> None:
        """Add one exchange.

        Args:
            layer: Name of the layer.
            direction: Of the exchange.
            bytes_sent: Bytes to other ranks.
            bytes_full_precision: What `FullPrecision` would have sent.
        """
        key = (layer, direction)
        entry = self._entries.get(key, Traffic())
        self._entries[key] = entry + Traffic(1, bytes_sent, bytes_full_precision)

    def record_times(self, direction: Direction, times: ExchangeTimes) -> None:
        """Add what a part of an exchange took.

        Args:
            direction: Of the exchange.
            times: The part's.
        """
        self._times[direction] = self._times.get(direction, ExchangeTimes()) + times

    @property
    def entries(self) -> Mapping[tuple[str, Direction], Traffic]:
        """A snapshot: traffic since the start, by layer and direction."""
        return MappingProxyType(dict(self._entries))

    def total(self, *directions: Direction) -> Traffic:
        """Return the traffic of some directions over all layers.

        Args:
            directions: Which directions; none means all.

        Returns:
            The sum since the start. Subtract an earlier one to get the traffic in between.
        """
        entries = [
            traffic
            for (_, direction), traffic in self._entries.items()
            if not directions or direction in directions
        ]
        return sum(entries, Traffic())

    def times(self, *directions: Direction) -> ExchangeTimes:
        """Return what the exchanges of some directions took this rank.

        Args:
            directions: Which directions; none means all.

        Returns:
            The sum since the start, as for `total`.
        """
        chosen = [
            times
            for direction, times in self._times.items()
            if not directions or direction in directions
        ]
        return sum(chosen, ExchangeTimes())
