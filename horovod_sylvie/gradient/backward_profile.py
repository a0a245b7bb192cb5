"""How long backward takes from gradient to gradient, from when they arrive.

By which clock, and what is taken out of its times, is the caller's business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Final

_STEPS_KEPT: Final = 11


class BackwardProfile:
    """Arrival times of the last steps.

    Invariant: every kept step holds a time for every parameter that it saw.
    """

    def __init__(self) -> None:
        self._steps: deque[Mapping[str, float]] = deque(maxlen=_STEPS_KEPT)

    def keep(self, arrivals_s: Mapping[str, float]) -> None:
        """Keep a step. `arrivals_s`: when each parameter's gradient was complete, in seconds."""
        self._steps.append(arrivals_s)

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
