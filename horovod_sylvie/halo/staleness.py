"""When a layer may compute with the halo rows of the epoch before.

Rows that are one epoch old need not be awaited: they were sent an epoch ago, and this epoch's are
on their way while the layer computes. The price is an error that grows with how fast rows change.

    Synchronous         never: every layer waits for this epoch's rows
    Pipelined           always, but for the first epochs and every E-th one
    BoundedStaleness    where the rows, measured, change little from epoch to epoch

Everything here is pure. All ranks decide alike, because they decide by the same numbers: the epoch,
and the drift, which travels in message headers.

Source: Zhang et al., "Boosting Distributed Full-graph GNN Training with Asynchronous One-bit
Communication" (2023): Sylvie-S, Sylvie-A, and the Bounded Staleness Adaptor, a period. Deciding by
the measured drift, layer by layer, is ours.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal


class Staleness(ABC):
    """A rule for when rows of the epoch before may be used.

    A subclass is a frozen dataclass: ranks compare its text, and it holds no state.
    """

    @abstractmethod
    def allows(self, epoch: int, drift: float) -> bool:
        """Return whether rows of the epoch before may be used.

        Args:
            epoch: Epochs that ended before this one.
            drift: How much those rows had changed since the epoch before, relative to their norm;
                NaN where that is not known or not measured.
        """

    @property
    def keeps_rows(self) -> bool:
        """Whether rows must be kept from one epoch to the next."""
        return True

    @property
    def measures_drift(self) -> bool:
        """Whether `allows` looks at the drift."""
        return False

    @property
    def settles_after(self) -> int:
        """Epochs after which old rows are used as often as later on."""
        return 0

    @property
    def starts_from_zeros(self) -> bool:
        """Whether the first epoch computes with zeros instead of waiting."""
        return False


@dataclass(frozen=True)
class Synchronous(Staleness):
    """Every layer waits for this epoch's rows (Sylvie-S): nothing is ever old."""

    def allows(self, epoch: int, drift: float) -> bool:
        """See `Staleness.allows`."""
        return False

    @property
    def keeps_rows(self) -> bool:
        """See `Staleness.keeps_rows`."""
        return False


@dataclass(frozen=True)
class Pipelined(Staleness):
    """Every layer computes with the rows of the epoch before (Sylvie-A).

    Attributes:
        sync_every: Every so many epochs, one is synchronous: the paper's Bounded Staleness
            Adaptor. Smaller follows the rows closer and waits more often; 1 is `Synchronous`.
            None: never.
        warmup: The first epochs are synchronous, because rows change fastest then.
        start: "synchronous", or "zeros" as in the paper: the first epoch computes with zeros
            instead of halo rows, and there is no warm-up.
    """

    sync_every: int | None = None
    warmup: int = 5
    start: Literal["synchronous", "zeros"] = "synchronous"

    def __post_init__(self) -> None:
        """Check the options."""
        if self.sync_every is not None and not _is_int(self.sync_every, least=1):
            raise ValueError(
                "Pipelined: expected a number of epochs from 1, or None, for 'sync_every', got "
                f"{self.sync_every!r}."
            )
        _check_warmup("Pipelined", self.warmup)
        if self.start not in ("synchronous", "zeros"):
            raise ValueError(
                f"Pipelined: expected 'synchronous' or 'zeros' for 'start', got {self.start!r}."
            )

    def allows(self, epoch: int, drift: float) -> bool:
        """See `Staleness.allows`."""
        if self.sync_every is not None and (epoch + 1) % self.sync_every == 0:
            return False
        return self.starts_from_zeros or epoch >= self.warmup

    @property
    def settles_after(self) -> int:
        """See `Staleness.settles_after`."""
        return 0 if self.starts_from_zeros else self.warmup

    @property
    def starts_from_zeros(self) -> bool:
        """See `Staleness.starts_from_zeros`."""
        return self.start == "zeros"


@dataclass(frozen=True)
class BoundedStaleness(Staleness):
    """A layer computes with the rows of the epoch before where they change little.

    Decided for each layer and direction by itself, at the moment of use: by the relative change,
    over the whole graph's boundary rows in full precision, from the epoch before to the rows at
    hand. Deep layers and gradients often change faster than the first layers' features.

    Attributes:
        max_drift: The largest relative change that is accepted. Larger waits less; 0 is
            `Synchronous`.
        warmup: The first epochs are synchronous.
    """

    max_drift: float = 0.1
    warmup: int = 5

    def __post_init__(self) -> None:
        """Check the options."""
        is_number = isinstance(self.max_drift, (int, float)) and type(self.max_drift) is not bool
        if not is_number or not 0 <= self.max_drift < math.inf:
            raise ValueError(
                "BoundedStaleness: expected a finite number from 0 for 'max_drift', got "
                f"{self.max_drift!r}."
            )
        _check_warmup("BoundedStaleness", self.warmup)

    def allows(self, epoch: int, drift: float) -> bool:
        """See `Staleness.allows`. A drift that is not known is too large."""
        return epoch >= self.warmup and self.max_drift > 0 and drift <= self.max_drift

    @property
    def measures_drift(self) -> bool:
        """See `Staleness.measures_drift`."""
        return True


def _is_int(value: object, *, least: int) -> bool:
    return isinstance(value, int) and type(value) is not bool and value >= least


def _check_warmup(name: str, warmup: object) -> None:
    if not _is_int(warmup, least=0):
        raise ValueError(
            f"{name}: expected a number of epochs from 0 for 'warmup', got {warmup!r}."
        )
