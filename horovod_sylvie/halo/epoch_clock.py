"""Which epoch it is, and which call of a layer.

In full-graph training one step is one epoch. The optimizer that owns the exchange ends it; where
none does, a forward pass that comes after a backward pass begins the next. A layer that is called
several times in an epoch has a *slot* for each call, so that what is kept of one call is never
taken for that of another.
"""

from __future__ import annotations

import re
import time


def layer_of(slot: str) -> str:
    """Return the name of the layer whose call a slot is for."""
    return re.sub(r"#\d+$", "", slot)


class EpochClock:
    """Counts epochs, and the calls of each layer in one.

    Attributes:
        epoch: Epochs that have ended.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self._calls: dict[str, int] = {}
        self._started_s = 0.0
        self._went_backward = False

    @property
    def is_running(self) -> bool:
        """Whether a layer has been called in this epoch."""
        return bool(self._calls)

    @property
    def is_over(self) -> bool:
        """Whether the next call of a layer belongs to the next epoch: backward has begun."""
        return self._went_backward

    def slot(self, layer: str) -> str:
        """Count a call of a layer in training, and return its slot.

        Args:
            layer: Name of the layer.

        Returns:
            The layer's name, and from its second call in an epoch also the call's number.
        """
        if not self._calls:
            self._started_s = time.perf_counter()
        number = self._calls.get(layer, 0)
        self._calls[layer] = number + 1
        return layer if number == 0 else f"{layer}#{number}"

    def elapsed_s(self) -> float:
        """Return the seconds since a layer was first called in this epoch."""
        return time.perf_counter() - self._started_s

    def go_backward(self) -> None:
        """Note that gradients have come. Where no layer was called, they are of an epoch before."""
        self._went_backward = self.is_running

    def resume_at(self, epoch: int) -> None:
        """Go on at an epoch of a checkpoint."""
        self.epoch = epoch
        self._begin()

    def end_epoch(self) -> None:
        """Begin the next epoch."""
        self.epoch += 1
        self._begin()

    def _begin(self) -> None:
        self._calls.clear()
        self._went_backward = False
