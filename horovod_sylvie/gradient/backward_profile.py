"""How long backward takes from gradient to gradient, from when they arrive.

Nothing is synchronised: on a CPU a hook runs when its gradient is there. What hooks themselves do
is taken out by the clock that they are timed with.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Final

_STEPS_KEPT: Final = 11


class BackwardProfile:
    """Arrival times of the last steps.

    Invariant: every kept step holds a time for every parameter that it saw, in arrival order.
    """

    def __init__(self) -> None:
        self._steps: deque[dict[str, float]] = deque(maxlen=_STEPS_KEPT)
        self._current: dict[str, float] = {}

    def arrive(self, name: str, now_s: float) -> None:
        """Note when a parameter's gradient was complete."""
        self._current[name] = now_s

    def end_step(self) -> None:
        """Keep the step, and begin another."""
        if self._current:
            self._steps.append(self._current)
        self._current = {}

    def drop_step(self) -> None:
        """Forget the step, and begin another."""
        self._current = {}

    def clear(self) -> None:
        """Forget all steps."""
        self._steps.clear()
        self._current = {}

    def intervals(self) -> dict[str, float]:
        """Return the seconds before each gradient: the median over steps since the one before it.

        Returns:
            By parameter, in the order in which their gradients came, by median position; 0 before
            the first of a step. Parameters that had no gradient are not in it.
        """
        found: dict[str, list[float]] = {}
        places: dict[str, list[int]] = {}
        for step in self._steps:
            before = None
            for place, (name, at_s) in enumerate(sorted(step.items(), key=lambda item: item[1])):
                found.setdefault(name, []).append(0.0 if before is None else at_s - before)
                places.setdefault(name, []).append(place)
                before = at_s
        order = sorted(found, key=lambda name: median(places[name]))
        return {name: median(found[name]) for name in order}
