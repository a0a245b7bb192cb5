"""What one rank measures of its own steps: backward, preparation, and the exchanges it waited for.

All of it are differences of a clock that is read in hooks and at the end of a step; nothing is
synchronised for it. The clock stands still while a hook prepares what is sent, so that backward's
time is what it would be alone.

Shapes: P ranks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from .backward_profile import BackwardProfile
from .exchange import Exchange
from .fused_exchange import FusedExchange
from .link_samples import Collective, Sample, Seen, sample_of
from .top_k_exchange import TopKExchange

_STEPS_KEPT: Final = 11
_START: Final = ""  # in place of a parameter: the step begins


@dataclass(frozen=True)
class Measured:
    """What a rank has measured, as numbers that other ranks can read.

    Attributes:
        intervals_s: Seconds before each gradient, by parameter, in the order of backward. The
            first is from the end of the step before.
        prepare_s: Seconds of preparing what is sent, per step of the plan.
        decode_s: Seconds of turning what came into gradients, per step of the plan.
        step_s: Seconds of a step.
    """

    intervals_s: dict[str, float]
    prepare_s: float
    decode_s: float
    step_s: float

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return asdict(self)


class RankMeasurements:
    """The newest steps of this rank."""

    def __init__(self) -> None:
        self._profile = BackwardProfile()
        self._steps_s: deque[float] = deque(maxlen=_STEPS_KEPT)
        self._observed: dict[tuple[Collective, int], list[float]] = {}
        self._stopped_s = 0.0  # how long the clock has stood still
        self._began_s: float | None = None

    def arrive(self, name: str) -> None:
        """Note that a gradient is complete."""
        self._profile.arrive(name, time.perf_counter() - self._stopped_s)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the clock stand still."""
        paused_at_s = time.perf_counter()
        try:
            yield
        finally:
            self._stopped_s += time.perf_counter() - paused_at_s

    def begin_step(self) -> None:
        """Begin a step now, and forget what there is of one that was not finished."""
        self._profile.drop_step()
        self._began_s = time.perf_counter()
        self._profile.arrive(_START, self._began_s - self._stopped_s)

    def end_step(self, exchanges: Sequence[Exchange]) -> None:
        """Keep a step that was exchanged, and begin the next. `exchanges`: as they were started."""
        self._profile.end_step()
        if self._began_s is not None:
            self._steps_s.append(time.perf_counter() - self._began_s)
        self._observe(exchanges)
        self.begin_step()

    def forget_steps(self) -> None:
        """Forget how long steps took: they will be exchanged in another way."""
        self._steps_s.clear()
        self._observed.clear()

    def observed(self) -> list[Sample]:
        """Return what exchanges took that this rank waited for; medians since the last call."""
        samples = [(*key, median(times)) for key, times in self._observed.items()]
        self._observed.clear()
        return samples

    def measured(self, exchanges: Sequence[Exchange]) -> Measured:
        """Return what was measured. `exchanges`: all of them."""
        intervals = self._profile.intervals()
        intervals.pop(_START, None)
        return Measured(
            intervals,
            sum(each.cost.selection_s / max(1, each.cost.num_steps) for each in exchanges),
            sum(each.cost.decoding_s / max(1, each.cost.num_steps) for each in exchanges),
            median(self._steps_s) if self._steps_s else 0.0,
        )

    def _observe(self, exchanges: Sequence[Exchange]) -> None:
        seen = [seen for each in exchanges if (seen := _seen(each)) is not None]
        sample = sample_of(seen) if len(seen) == len(exchanges) else None
        if sample is not None:
            collective, nbytes, seconds = sample
            self._observed.setdefault((collective, nbytes), []).append(seconds)


def _seen(exchange: Exchange) -> Seen | None:
    """Return what this rank saw of an exchange that is one collective."""
    if not isinstance(exchange, (TopKExchange, FusedExchange)):
        return None
    collective: Collective = "allgather" if isinstance(exchange, TopKExchange) else "allreduce"
    cost = exchange.cost
    return Seen(collective, exchange.payload_bytes, cost.submitted_s, cost.completed_s)
