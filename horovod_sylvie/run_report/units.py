"""Figures as people read them: three digits, and a unit that suits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class Unit:
    """What figures are shown in.

    Attributes:
        suffix: Its sign; empty for plain numbers.
        factor: What a figure is multiplied by.
    """

    suffix: str = ""
    factor: float = 1.0

    def text(self, value: float) -> str:
        """Return a figure with the unit's sign."""
        return f"{figure_text(value * self.factor)} {self.suffix}".rstrip()


NUMBER: Final = Unit()
PERCENT: Final = Unit("%", 100.0)


def byte_unit(largest: float) -> Unit:
    """Return the unit in which the largest of some numbers of bytes is a number below 1024."""
    power = 0
    while largest >= 1024 and power < len(_BYTES) - 1:
        largest /= 1024
        power += 1
    return Unit(_BYTES[power], 1024.0**-power)


def second_unit(largest: float) -> Unit:
    """Return the unit in which the largest of some seconds is a number from 1, if one has it."""
    if largest >= 1 or largest == 0:
        return Unit("s")
    return Unit("ms", 1e3) if largest >= 1e-3 else Unit("µs", 1e6)


def bytes_text(value: float) -> str:
    """Return a number of bytes with the unit that suits."""
    return byte_unit(value).text(value)


def seconds_text(value: float) -> str:
    """Return seconds with the unit that suits."""
    return second_unit(value).text(value)


def times_less(sent: float, full: float) -> str:
    """Return how many times less was sent than would have been; empty where that says nothing."""
    return f"{figure_text(full / sent)}× less" if sent > 0 and full > sent else ""


def figure_text(value: float) -> str:
    """Return a number to three digits, with an exponent where it is very large or small."""
    if not math.isfinite(value):
        return "not a number"
    size = abs(value)
    if size and not 1e-4 <= size < 1e6:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}".replace("-", "−")
    digits = 2 - math.floor(math.log10(size)) if size else 0
    text = f"{value:,.{min(6, max(0, digits))}f}"
    return text.replace("-", "−")


def tick_text(value: float, step: float) -> str:
    """Return the label of a tick: as many decimals as its neighbours need."""
    if not (abs(value) < 1e6 and step >= 1e-5):
        return figure_text(value)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:,.{decimals}f}".replace("-", "−")


def log_tick_text(value: float) -> str:
    """Return the label of a tick that has one digit but for zeros."""
    if not 1e-4 <= value < 1e6:
        mantissa, exponent = f"{value:.0e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    return f"{value:,.{max(0, -math.floor(math.log10(value) + 1e-9))}f}"
