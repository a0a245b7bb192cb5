"""What one rank measures of its own steps: backward, preparation, and the exchanges it waited for.

All of it are differences of a clock that is read in hooks and at the end of a step; nothing is
synchronised for it. The clock stands still while a hook prepares what is sent, so that backward's
time is what it would be alone; a thread that selects beside backward slows it down where cores are
few, and that is in its time.

On a GPU the clock is the device's, and a step's times are there some steps later. What the host can
see of a device's work by itself, how long a hook takes or when a message has come, says nothing
about it, and is not used.

Shapes: P ranks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Final

from ..device.clock import Clock, HostClock, Mark
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
        prepare_s: Seconds of preparing what is sent, per step of the plan; 0 if not known.
        decode_s: Seconds of turning what came into gradients, per step of the plan; 0 if not known.
        step_s: Seconds of a step.
    """

    intervals_s: dict[str, float]
    prepare_s: float
    decode_s: float
    step_s: float

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return asdict(self)


@dataclass
class _Step:
    """The marks of one step.

    Attributes:
        began: When it began.
        marks: Name of a parameter whose gradient came, or None where the clock stopped or went on.
    """

    began: Mark
    marks: list[tuple[str | None, Mark]] = field(default_factory=list)

    def times(self) -> tuple[dict[str, float], float]:
        """Return the seconds of each gradient, and those for which the clock has stood still."""
        arrivals = {_START: 0.0}
        stood_s = 0.0
        stopped_s: float | None = None
        for name, mark in self.marks:
            at_s = mark.seconds_after(self.began)
            if name is not None:
                arrivals[name] = at_s - stood_s
            elif stopped_s is None:
                stopped_s = at_s
            else:
                stood_s += at_s - stopped_s
                stopped_s = None
        return arrivals, stood_s


class RankMeasurements:
    """The newest steps of this rank.

    Args:
        clock: Of where the parameters are; None for the host's.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = HostClock() if clock is None else clock
        self._profile = BackwardProfile()
        self._steps_s: deque[float] = deque(maxlen=_STEPS_KEPT)
        self._prepared_s: deque[float] = deque(maxlen=_STEPS_KEPT)
        self._observed: dict[tuple[Collective, int], list[float]] = {}
        self._ended: deque[tuple[_Step, Mark]] = deque()  # whose times may not be there yet
        self._step: _Step | None = None

    def arrive(self, name: str) -> None:
        """Note that a gradient is complete."""
        self._note(name)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the clock stand still."""
        self._note(None)
        try:
            yield
        finally:
            self._note(None)

    def begin_step(self) -> None:
        """Begin a step now, and forget what there is of one that was not finished."""
        self._step = _Step(self._clock.mark())

    def end_step(self, exchanges: Sequence[Exchange]) -> None:
        """Keep a step that was exchanged, and begin the next. `exchanges`: as they were started."""
        ended, self._step = self._step, _Step(self._clock.mark())
        if ended is not None:
            self._ended.append((ended, self._step.began))
        self._read_steps()
        if self._clock.is_of_host:
            self._observe(exchanges)

    def forget_steps(self) -> None:
        """Forget how long steps took: they will be exchanged in another way."""
        self._ended.clear()
        self._steps_s.clear()
        self._prepared_s.clear()
        self._observed.clear()

    def observed(self) -> list[Sample]:
        """Return what exchanges took that this rank waited for; medians since the last call."""
        samples = [(*key, median(times)) for key, times in self._observed.items()]
        self._observed.clear()
        return samples

    def measured(self, exchanges: Sequence[Exchange]) -> Measured:
        """Return what was measured. `exchanges`: all of them."""
        self._read_steps()
        intervals = self._profile.intervals()
        intervals.pop(_START, None)
        prepare_s = median(self._prepared_s) if self._prepared_s else 0.0
        decode_s = 0.0
        if self._clock.is_of_host:
            costs = [each.cost for each in exchanges]
            prepare_s = sum(each.selection_s / max(1, each.num_steps) for each in costs)
            decode_s = sum(each.decoding_s / max(1, each.num_steps) for each in costs)
        step_s = median(self._steps_s) if self._steps_s else 0.0
        return Measured(intervals, prepare_s, decode_s, step_s)

    def _note(self, name: str | None) -> None:
        if self._step is not None:
            self._step.marks.append((name, self._clock.mark()))

    def _read_steps(self) -> None:
        """Read the times of steps that have ended on the device, too; the others come later."""
        while self._ended and self._ended[0][1].is_complete():
            step, ended = self._ended.popleft()
            arrivals, stood_s = step.times()
            self._profile.keep(arrivals)
            self._steps_s.append(ended.seconds_after(step.began))
            self._prepared_s.append(stood_s)

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
