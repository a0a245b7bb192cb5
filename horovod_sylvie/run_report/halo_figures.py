"""What the halo exchanges of one epoch did on a rank: differences of what they report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..halo.epoch_report import EpochReport
from ..halo.traffic import Direction, ExchangeTimes, Traffic, TrafficLedger

_TRAINING: Final[tuple[Direction, Direction]] = ("forward", "backward")

Entries = Mapping[tuple[str, Direction], Traffic]


@dataclass(frozen=True)
class HaloFigures:
    """Figures since those before, of this rank.

    Attributes:
        num_epochs: Epochs of training that they are totals of.
        forward: What was sent of features.
        backward: What was sent of their gradients.
        times: What both took.
        exchanges: The exchanges of the newest epoch, as "layer.direction".
        stale: Those that computed with rows of the epoch before.
        drift: The drift by which that was decided, where it was measured.
    """

    num_epochs: int
    forward: Traffic
    backward: Traffic
    times: ExchangeTimes
    exchanges: tuple[str, ...]
    stale: tuple[str, ...]
    drift: Mapping[str, float]


class HaloReader:
    """Reads one halo exchange's reports, epoch by epoch.

    Attributes:
        entries: All traffic that it knows of, by layer and direction.
        num_epochs: Epochs of training in it.
        max_drift: What bounded staleness allows; None without it.
    """

    def __init__(self) -> None:
        self.entries: Entries = {}
        self.num_epochs = 0
        self.max_drift: float | None = None
        self._times = ExchangeTimes()
        self._halo: object = None

    def read(self, halo: Any) -> HaloFigures | None:
        """Return the figures since the last call; None where nothing was sent in training.

        Raises:
            TypeError: It is not a halo exchange.
            ValueError: It is another one than in the calls before.
        """
        ledger = getattr(halo, "traffic", None)
        if not isinstance(ledger, TrafficLedger):
            raise TypeError(
                "add_epoch: expected an hvs.HaloExchange for 'halo', got "
                f"{type(halo).__name__}. Pass what the model was converted with, or leave it out."
            )
        if self._halo not in (None, halo):
            raise ValueError(
                "add_epoch: expected the same 'halo' in every epoch, got another one. Make a "
                "report for each."
            )
        self._halo = halo
        self.max_drift = getattr(halo.staleness, "max_drift", None)
        before, before_times = self.entries, self._times
        self.entries, self._times = ledger.entries, ledger.times(*_TRAINING)
        since = {key: now - before.get(key, Traffic()) for key, now in self.entries.items()}
        # Each layer's call in training is one exchange of an epoch
        num_epochs = max(
            (each.num_exchanges for key, each in since.items() if key[1] in _TRAINING), default=0
        )
        self.num_epochs += num_epochs
        if num_epochs == 0:
            return None
        return HaloFigures(
            num_epochs,
            _total(since, "forward"),
            _total(since, "backward"),
            self._times - before_times,
            *_newest(halo.last_epoch),
        )


def _total(entries: Entries, wanted: Direction) -> Traffic:
    chosen = (traffic for (_, direction), traffic in entries.items() if direction == wanted)
    return sum(chosen, Traffic())


def _newest(
    report: EpochReport | None,
) -> tuple[tuple[str, ...], tuple[str, ...], Mapping[str, float]]:
    """Return the exchanges of an epoch, those with old rows, and the drifts that were measured."""
    if report is None:
        return (), (), {}
    names = tuple(f"{each.layer}.{each.direction}" for each in report.layers)
    drift = {
        name: each.drift
        for name, each in zip(names, report.layers, strict=True)
        if not math.isnan(each.drift)
    }
    return names, report.stale, drift
