"""Which base bit the trend of the loss asks for: a pure state machine, one step per epoch.

Source: "Sylvie: 3D-Adaptive and Universal System for Large-Scale Graph Neural Network Training"
(ICDE 2024). While the loss falls more and more slowly, finer rows are worth their bytes: the base
bit is doubled. Where it changes faster and faster, coarse rows do: the base bit is halved.

Ours differs in three things. The paper's code reads the loss of rank 0, which is noisy: ours takes
the loss of all ranks together. It divides by the epoch's time, which differs from rank to rank,
while all ranks must decide alike without asking each other: ours takes the change per epoch. And
it may change its mind every epoch, and does: ours waits after a change for a window of speeds that
were all measured under the new base bit, and for `hold` epochs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from .bit_allocation import BIT_WIDTHS

_SHARE: Final = 0.1  # of each new loss in the moving average
_WINDOW: Final = 5
_NUM_FIXED: Final = 6  # fields before `speeds` in `to_numbers`


@dataclass(frozen=True)
class LossTrend:
    """The base bit, and what of the losses so far decides about it.

    Attributes:
        base: The base bit now: 1, 2, 4 or 8.
        hold: Epochs before the first change, and between two changes, at least.
        start: The first epoch, counted from 0, after which the base may change.
        num_observed: Epochs observed so far.
        num_since_change: Epochs observed since the base last changed, or since the start.
        smoothed: Moving average of the loss; 0 before the first epoch.
        speeds: How much the average changed in each of the last epochs since the last change, the
            newest last; at most 5.
    """

    base: int = 1
    hold: int = 10
    start: int = 9
    num_observed: int = 0
    num_since_change: int = 0
    smoothed: float = 0.0
    speeds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Check the fields."""
        if type(self.base) is not int or self.base not in BIT_WIDTHS:
            raise ValueError(
                f"LossTrend: expected one of {BIT_WIDTHS} for 'base', got {self.base!r}."
            )
        for name, least in (("hold", 1), ("start", 0), ("num_observed", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(
                    f"LossTrend: expected an int of at least {least} for '{name}', got {value!r}."
                )
        since = self.num_since_change
        if type(since) is not int or not 0 <= since <= self.num_observed:
            raise ValueError(
                f"LossTrend: expected an int from 0 to {self.num_observed}, the epochs observed, "
                f"for 'num_since_change', got {since!r}."
            )
        numbers = (self.smoothed, *self.speeds)
        if len(self.speeds) > _WINDOW or not all(map(math.isfinite, numbers)):
            raise ValueError(
                f"LossTrend: expected finite numbers for 'smoothed' and at most {_WINDOW} "
                f"'speeds', got {self.smoothed!r} and {self.speeds!r}."
            )

    def observe(self, loss: float, *, may_change: bool = True) -> LossTrend:
        """Return the state after one more epoch.

        Args:
            loss: The epoch's training loss over all ranks: all-reduced, so that every rank gives
                the same number and all decide alike.
            may_change: Whether the base may change after this epoch. Where not, the loss still
                counts for a later one.

        Returns:
            The new state; its `base` is that of the next epoch.

        Raises:
            ValueError: The loss is not finite.
        """
        if not math.isfinite(loss):
            raise ValueError(
                f"LossTrend.observe: expected a finite number for 'loss', got {loss!r}. Look for "
                "a too large learning rate."
            )
        first = self.num_observed == 0
        smoothed = loss if first else self.smoothed + _SHARE * (loss - self.smoothed)
        speed = () if first else (abs(smoothed - self.smoothed),)
        seen = replace(
            self,
            num_observed=self.num_observed + 1,
            num_since_change=self.num_since_change + 1,
            smoothed=smoothed,
            speeds=(*self.speeds, *speed)[-_WINDOW:],
        )
        base = seen._wanted() if may_change else self.base
        return (
            seen if base == seen.base else replace(seen, base=base, num_since_change=0, speeds=())
        )

    def _wanted(self) -> int:
        """Return the base bit that the window asks for."""
        waits = self.num_since_change < self.hold or self.num_observed <= self.start
        if waits or len(self.speeds) < _WINDOW:
            return self.base
        if all(late <= early for early, late in pairwise(self.speeds)):  # also where it stands
            return min(2 * self.base, BIT_WIDTHS[-1])
        if all(late >= early for early, late in pairwise(self.speeds)):
            return max(self.base // 2, BIT_WIDTHS[0])
        return self.base

    def to_numbers(self) -> tuple[float, ...]:
        """Return the state as numbers, for a checkpoint; at most 11 of them."""
        return (
            self.base,
            self.hold,
            self.start,
            self.num_observed,
            self.num_since_change,
            self.smoothed,
            *self.speeds,
        )

    @staticmethod
    def from_numbers(numbers: Sequence[float]) -> LossTrend:
        """Return the state that `to_numbers` wrote, to the last bit.

        Args:
            numbers: What it returned; whole numbers may have become floats on the way.

        Raises:
            ValueError: They are no state.
        """
        counts = [float(number) for number in numbers[: _NUM_FIXED - 1]]
        if len(numbers) < _NUM_FIXED or not all(count.is_integer() for count in counts):
            raise ValueError(
                "LossTrend.from_numbers: expected 5 whole numbers, a float and up to "
                f"{_WINDOW} speeds for 'numbers', got {list(numbers)}. Give what to_numbers() "
                "returned."
            )
        base, hold, start, num_observed, num_since_change = map(int, counts)
        smoothed, *speeds = (float(number) for number in numbers[_NUM_FIXED - 1 :])
        return LossTrend(base, hold, start, num_observed, num_since_change, smoothed, tuple(speeds))
