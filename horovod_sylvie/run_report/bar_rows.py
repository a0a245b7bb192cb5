"""Bars below each other: for each name its parts in a row, or what is left of a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .markup import Markup
from .plot_frame import (
    WIDTH,
    drawing,
    group,
    hint,
    legend,
    rectangle,
    shortened,
    width_of,
    words,
)

MOST_ROWS: Final = 20
_ROW: Final = 22.0
_BAR: Final = 13.0
_LONGEST_NAME: Final = 28


@dataclass(frozen=True)
class Row:
    """One name's bars.

    Attributes:
        name: What they are about.
        parts: Figures from 0: lengths, in the order of the classes; none where only the text is
            shown.
        text: What is written beside them.
    """

    name: str
    parts: tuple[float, ...]
    text: str


def stacked_rows(
    name: str, label: str, kinds: Sequence[tuple[str, str]], rows: Sequence[Row]
) -> Markup:
    """Return a chart of bars whose parts follow each other.

    Args:
        name: Of the chart.
        label: What it shows.
        kinds: Class and name of each part, from the left.
        rows: From the top.
    """
    return _chart(name, label, kinds, rows, is_stacked=True)


def remaining_rows(
    name: str, label: str, kinds: Sequence[tuple[str, str]], rows: Sequence[Row]
) -> Markup:
    """Return a chart of bars whose later parts are drawn upon the first: so much is left of it.

    Args:
        name: Of the chart.
        label: What it shows.
        kinds: Class and name of each part, the whole first.
        rows: From the top.
    """
    return _chart(name, label, kinds, rows, is_stacked=False)


def _chart(
    name: str,
    label: str,
    kinds: Sequence[tuple[str, str]],
    rows: Sequence[Row],
    *,
    is_stacked: bool,
) -> Markup:
    key, key_height = legend(kinds, "box")
    left = 12 + max((width_of(shortened(row.name, _LONGEST_NAME)) for row in rows), default=0.0)
    right = WIDTH - 12 - max((width_of(row.text, is_strong=True) for row in rows), default=0.0)
    total = sum if is_stacked else max
    longest = max((total(row.parts) for row in rows if row.parts), default=0.0)
    scale = (right - left) / longest if longest > 0 else 0.0
    parts = [key]
    for number, row in enumerate(rows):
        y = key_height + 12 + (number + 0.5) * _ROW
        texts = [f"{kind}: {part:,.6g}" for (_, kind), part in zip(kinds, row.parts, strict=False)]
        bars: list[str] = [hint("\n".join([row.name, row.text, *texts]))]
        bars.append(
            words(left - 8, y, shortened(row.name, _LONGEST_NAME), anchor="end", kind="tick")
        )
        x = left
        for (kind, _), part in zip(kinds, row.parts, strict=False):
            # What is not nothing is seen
            length = max(1.0, part * scale) if part > 0 else 0.0
            bars.append(rectangle(x, y - _BAR / 2, length, _BAR, f"bar {kind}"))
            x += length if is_stacked else 0.0
        bars.append(words(WIDTH, y, row.text, anchor="end", kind="end"))
        parts.append(group("row", *bars))
    return drawing(name, label, key_height + 18 + len(rows) * _ROW, *parts)
