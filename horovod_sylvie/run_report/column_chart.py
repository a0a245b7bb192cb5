"""A chart of parts over epochs: a column for each epoch, or for some, its parts upon each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .markup import Markup
from .plot_frame import (
    WIDTH,
    Frame,
    drawing,
    group,
    hint,
    label_margin,
    legend,
    rectangle,
    words,
)
from .scale import Scale, linear_scale
from .units import Unit

_HEIGHT: Final = 220.0  # of what is between the axes
MOST_COLUMNS: Final = 60
_WIDEST: Final = 44.0
_MOST_LABELLED: Final = 8
_MOST_TICKS: Final = 12


@dataclass(frozen=True)
class Column:
    """Parts of a whole.

    Attributes:
        first: The first epoch that it is about.
        last: The last; parts are means over those from the first.
        parts: Figures from 0, the lowest first.
    """

    first: int
    last: int
    parts: tuple[float, ...]

    @property
    def name(self) -> str:
        """Which epochs it is about."""
        return f"epoch {self.first}" + (f" to {self.last}" if self.last > self.first else "")


def binned(columns: Sequence[Column]) -> list[Column]:
    """Return at most so many columns as can be told apart: means of as many epochs each."""
    every = -(-len(columns) // MOST_COLUMNS) or 1
    groups = [columns[start : start + every] for start in range(0, len(columns), every)]
    return [
        Column(
            some[0].first,
            some[-1].last,
            tuple(
                sum(part) / len(some) for part in zip(*(each.parts for each in some), strict=True)
            ),
        )
        for some in groups
    ]


def column_chart(
    name: str,
    label: str,
    kinds: Sequence[tuple[str, str]],
    columns: Sequence[Column],
    *,
    y_name: str,
    unit: Unit,
) -> Markup:
    """Return a chart of columns.

    Args:
        name: Of the chart.
        label: What it shows.
        kinds: Class and name of each part, the lowest first.
        columns: By epoch; many are shown as means.
        y_name: What the whole is.
        unit: In which it is shown.
    """
    shown = binned(columns)
    heights = [sum(each.parts) * unit.factor for each in shown]
    y = linear_scale(heights, from_zero=True)
    key, key_height = legend(kinds, "box")
    top = key_height + 28
    frame = Frame(
        _places(shown).between(label_margin(y), WIDTH - 12),
        y.between(top + _HEIGHT, top),
        "epoch",
        f"{y_name}, {unit.suffix}",
    )
    parts = [key, frame.draw()]
    for number, (each, height) in enumerate(zip(shown, heights, strict=True)):
        middle = frame.x.place(number)
        parts.append(_column(frame, each, middle, kinds, unit))
        if len(shown) <= _MOST_LABELLED:
            text = Unit(unit.suffix).text(height)
            at = frame.y.place(height) - 8
            parts.append(words(middle, at, text, anchor="middle", kind="end"))
    return drawing(name, label, top + _HEIGHT + 40, *parts)


def _places(columns: Sequence[Column]) -> Scale:
    """Return a place for each column, and labels that do not touch."""
    every = -(-len(columns) // _MOST_TICKS) or 1
    ticks = tuple(
        (float(number), str(columns[number].first)) for number in range(0, len(columns), every)
    )
    return Scale(-0.5, max(1, len(columns)) - 0.5, ticks)


def _column(
    frame: Frame,
    column: Column,
    middle: float,
    kinds: Sequence[tuple[str, str]],
    unit: Unit,
) -> Markup:
    """Return the parts of one column, upon each other."""
    width = min(_WIDEST, 0.8 * (frame.x.place(1) - frame.x.place(0) or _WIDEST))
    texts = [
        f"{name}: {unit.text(part)}" for (_, name), part in zip(kinds, column.parts, strict=True)
    ]
    parts, below = [hint("\n".join([column.name, *texts]))], 0.0
    for (kind, _), part in zip(kinds, column.parts, strict=True):
        low, high = (frame.y.place(value * unit.factor) for value in (below, below + part))
        parts.append(rectangle(middle - width / 2, high, width, low - high, f"bar {kind}"))
        below += part
    return group("column", *parts)
