"""From figures to pixels along an axis, and the ticks that people read them by."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from .units import log_tick_text, tick_text

# Larger ones are no figures but a training that went astray, and their differences overflow
LARGEST: Final = 1e300
_SMALLEST: Final = 1e-300
# Spans that are smaller against their figures are widened: labels would differ in no digit shown
_LEAST_SPAN: Final = 1e-6


def is_shown(value: float | None) -> bool:
    """Return whether a figure has a place on an axis."""
    return value is not None and abs(value) < LARGEST  # a comparison that is false for NaN


@dataclass(frozen=True)
class Scale:
    """Places figures between two pixels.

    Attributes:
        low: The figure at `start`.
        high: The figure at `end`, larger.
        ticks: Figures from `low` to `high`, with their labels.
        is_log: Whether equal ratios, not differences, are equally long.
        start: A pixel.
        end: Another one; may be the smaller.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    is_log: bool = False
    start: float = 0.0
    end: float = 1.0

    def between(self, start: float, end: float) -> Scale:
        """Return the same scale between two other pixels."""
        return replace(self, start=start, end=end)

    def place(self, value: float) -> float:
        """Return where a figure is; one beyond the ends is at the end."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.is_log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return self.start + (self.end - self.start) * (at - low) / (high - low)


def nice_step(span: float, about: int) -> float:
    """Return the least of 1, 2 and 5 times a power of ten that makes at most `about` steps."""
    raw = span / about
    power: float = 10.0 ** math.floor(math.log10(raw))
    return next((m * power for m in (1, 2, 5) if m * power >= raw * (1 - 1e-9)), 10 * power)


def linear_scale(
    values: Iterable[float | None], *, from_zero: bool = False, whole: bool = False, about: int = 5
) -> Scale:
    """Return a scale for figures, those that are not numbers left out.

    Args:
        values: The figures.
        from_zero: Whether zero is on the axis.
        whole: Whether figures are whole numbers: the axis then ends at the outermost of them.
        about: The number of steps that suits.
    """
    shown = [value for value in values if value is not None and is_shown(value)]
    low, high = (min(shown), max(shown)) if shown else (0.0, 1.0)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    low, high = _widened(low, high, whole=whole)
    step = nice_step(high - low, about)
    if whole:
        step = max(1.0, step)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    else:
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        low, high = first * step, last * step
    ticks = tuple(
        (number * step, tick_text(number * step, step)) for number in range(first, last + 1)
    )
    return Scale(low, high, ticks)


def _widened(low: float, high: float, *, whole: bool) -> tuple[float, float]:
    """Return ends that are apart."""
    if whole:
        return (low - 0.5, high + 0.5) if high == low else (low, high)
    largest = max(abs(low), abs(high))
    if largest < _SMALLEST:
        return 0.0, 1.0
    if high - low < _LEAST_SPAN * largest:
        middle, reach = (low + high) / 2, 0.05 * largest
        return middle - reach, middle + reach
    return low, high


def suits_log(values: Iterable[float | None]) -> bool:
    """Return whether figures are positive and differ by so much that ratios tell more."""
    shown = [value for value in values if value is not None and is_shown(value)]
    return bool(shown) and min(shown) > _SMALLEST and max(shown) / min(shown) > 100


def log_scale(values: Iterable[float | None]) -> Scale:
    """Return a logarithmic scale for figures, those that are not positive left out."""
    shown = [value for value in values if value is not None and is_shown(value)]
    shown = [value for value in shown if value > _SMALLEST] or [1.0]
    first = math.floor(math.log10(min(shown)) + 1e-9)
    last = math.ceil(math.log10(max(shown)) - 1e-9)
    last = max(last, first + 1)
    if last - first <= 2:
        marks = [m * 10.0**e for e in range(first, last + 1) for m in (1, 2, 5)]
    else:
        every = -(-(last - first) // 6)
        marks = [10.0**e for e in range(first, last + every, every)]
    low = max((mark for mark in marks if mark <= min(shown) * 1.000001), default=marks[0])
    high = min((mark for mark in marks if mark >= max(shown) * 0.999999), default=marks[-1])
    if high <= low:
        high = marks[marks.index(low) + 1]
    ticks = tuple((mark, log_tick_text(mark)) for mark in marks if low <= mark <= high)
    return Scale(low, high, ticks, is_log=True)
