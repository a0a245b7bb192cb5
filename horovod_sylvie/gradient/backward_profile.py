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

    def clear(self) -> None:
        """Forget all steps."""
        self._steps.clear()
        self._current = {}

    def intervals(self, names: list[str]) -> list[float]:
        """Return the seconds before each gradient; 0 before the first of a step.

        Args:
            names: Of the parameters.

        Returns:
            In the order of `names`: the median over steps of the time since the gradient before
            it, and 0 for parameters that had none.
        """
        found: dict[str, list[float]] = {}
        for step in self._steps:
            before = None
            for name, at_s in sorted(step.items(), key=lambda item: item[1]):
                found.setdefault(name, []).append(0.0 if before is None else at_s - before)
                before = at_s
        return [median(found[name]) if name in found else 0.0 for name in names]

    def arrival_order(self, names: list[str]) -> list[str]:
        """Return parameters in the order in which their gradients came, by median position."""
        places: dict[str, list[float]] = {}
        for step in self._steps:
            ordered = sorted(step, key=step.__getitem__)
            for place, name in enumerate(ordered):
                places.setdefault(name, []).append(place)
        last = float(len(names))
        keys = {name: median(places[name]) if name in places else last for name in names}
        return sorted(names, key=lambda name: (keys[name], -names.index(name)))
