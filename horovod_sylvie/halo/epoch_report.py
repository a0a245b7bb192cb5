"""What the halo exchanges of one epoch did: which layers computed with old rows, bits and bytes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from .pipeline import Use
from .traffic import Direction, Traffic, TrafficLedger

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LayerReport:
    """One layer and direction in one epoch.

    Attributes:
        layer: Name of the layer; from its second call in an epoch, with the call's number.
        direction: "forward" or "backward".
        is_stale: Whether it computed with the rows of the epoch before.
        drift: The drift by which that was decided; NaN where it was not measured.
        traffic: What this rank sent.
    """

    layer: str
    direction: Direction
    is_stale: bool
    drift: float
    traffic: Traffic

    @property
    def compression(self) -> float:
        """Bytes in full precision by bytes sent; 1 where nothing was sent."""
        sent = self.traffic.bytes_sent
        return self.traffic.bytes_full_precision / sent if sent else 1.0


@dataclass(frozen=True)
class EpochReport:
    """All layers in one epoch.

    Attributes:
        epoch: Epochs that ended before.
        layers: In the order of the exchanges.
    """

    epoch: int
    layers: tuple[LayerReport, ...]

    @property
    def traffic(self) -> Traffic:
        """What this rank sent, over all layers."""
        return sum((each.traffic for each in self.layers), Traffic())

    @property
    def stale(self) -> tuple[str, ...]:
        """The layers that computed with rows of the epoch before, as "layer.direction"."""
        return tuple(f"{each.layer}.{each.direction}" for each in self.layers if each.is_stale)


class EpochReporter:
    """Makes the reports of one rank.

    Args:
        traffic: What is sent.

    Attributes:
        newest: The newest epoch that has ended; None before the first ends.
    """

    def __init__(self, traffic: TrafficLedger) -> None:
        self.newest: EpochReport | None = None
        self._traffic = traffic
        self._before: Mapping[tuple[str, Direction], Traffic] = {}

    def end(self, epoch: int, uses: Mapping[tuple[str, Direction], Use]) -> None:
        """Report an epoch that ends.

        Args:
            epoch: Epochs that ended before.
            uses: What each slot and direction computed with.
        """
        now = self._traffic.entries
        self.newest = EpochReport(
            epoch,
            tuple(
                LayerReport(
                    *key, use.is_stale, use.drift, now[key] - self._before.get(key, Traffic())
                )
                for key, use in uses.items()
            ),
        )
        self._before = now
        stale = ", ".join(self.newest.stale) or "none"
        logger.debug("epoch %d: rows of the epoch before: %s", epoch, stale)
