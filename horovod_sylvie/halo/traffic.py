"""Bytes of halo traffic, counted where they are sent.

The counts are of this rank's messages to other ranks, headers included: what is handed to the
communicator, not an estimate. Horovod's own framing and coordination are not in them.
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


class TrafficLedger:
    """Traffic by layer and direction.

    Directions: "features" (the input of the first layer, fetched once), "forward" and "backward"
    (training), "evaluation" (always full precision).
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[str, Direction], Traffic] = {}

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
