"""A chart of figures over epochs: a line for each kind, its name and newest figure at its end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from .markup import Markup, element
from .plot_frame import (
    WIDTH,
    Frame,
    apart,
    colour,
    drawing,
    group,
    hint,
    label_margin,
    legend,
    line,
    rectangle,
    shortened,
    width_of,
    words,
)
from .scale import Scale, is_shown, linear_scale, log_scale, suits_log
from .units import NUMBER, Unit

_HEIGHT: Final = 220.0  # of what is between the axes
_LABEL_GAP: Final = 14.0
_MOST_MARKERS: Final = 40
_MOST_POINTS: Final = 600
_MOST_HINTS: Final = 200

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """Figures of one kind.

    Attributes:
        name: What they are.
        points: Epoch and figure, by epoch; a figure that is not a number makes a gap.
    """

    name: str
    points: tuple[Point, ...]


def line_chart(
    name: str,
    label: str,
    lines: Sequence[Line],
    *,
    y_name: str,
    unit: Unit = NUMBER,
    epochs: tuple[int, int] | None = None,
    from_zero: bool = False,
    reference: tuple[str, float] | None = None,
) -> Markup:
    """Return a chart of lines.

    Args:
        name: Of the chart.
        label: What it shows.
        lines: At most as many as there are colours look well.
        y_name: What the figures are.
        unit: In which they are shown.
        epochs: The first and the last on the axis; by default those with figures.
        from_zero: Whether zero is on the axis; not where only a logarithmic one shows the figures.
        reference: A name and a figure to compare with: a line from side to side.
    """
    scaled = [
        Line(each.name, tuple((x, y * unit.factor) for x, y in each.points)) for each in lines
    ]
    ends = [_End(colour(number), *_newest(each)) for number, each in enumerate(scaled)]
    if reference is not None:
        ends.append(_End("", reference[0], reference[1] * unit.factor))
    ends = [each for each in ends if is_shown(each.value)]
    names = [(colour(number), each.name) for number, each in enumerate(lines)]
    key, top = legend(names if lines[1:] else [], "line")
    top += 28
    y = _y_scale(scaled, ends, from_zero=from_zero)
    widths = [width_of(each.text(unit), is_strong=True) for each in ends]
    frame = Frame(
        _x_scale(scaled, epochs).between(label_margin(y), WIDTH - 10 - max(widths, default=0.0)),
        y.between(top + _HEIGHT, top),
        "epoch",
        _axis_name(y_name, unit, is_log=y.is_log),
    )
    parts = [key, frame.draw(), _gaps(frame, scaled)]
    if reference is not None:
        at = frame.y.place(reference[1] * unit.factor)
        parts.append(line(frame.x.start, at, frame.x.end, at, "reference"))
    parts += [_curve(frame, each, colour(number)) for number, each in enumerate(scaled)]
    parts.append(_end_labels(frame, ends, unit))
    parts.append(_hints(frame, scaled, unit, top))
    return drawing(name, label, top + _HEIGHT + 40, *parts)


@dataclass(frozen=True)
class _End:
    """What is written where a line ends.

    Attributes:
        kind: Class of its colour; empty for that of text.
        name: Of the line.
        value: Its newest figure; NaN where no figure is a number.
    """

    kind: str
    name: str
    value: float

    def text(self, unit: Unit) -> str:
        return f"{shortened(self.name, 18)} {Unit(unit.suffix).text(self.value)}"


def _newest(each: Line) -> tuple[str, float]:
    """Return a line's name, and its last figure that is a number."""
    return each.name, next((y for _, y in reversed(each.points) if is_shown(y)), math.nan)


def _x_scale(lines: Sequence[Line], epochs: tuple[int, int] | None) -> Scale:
    shown = [x for each in lines for x, _ in each.points] + [float(x) for x in epochs or ()]
    return linear_scale(shown, whole=True, about=8)


def _y_scale(lines: Sequence[Line], ends: Sequence[_End], *, from_zero: bool) -> Scale:
    values = [y for each in lines for _, y in each.points] + [each.value for each in ends]
    return log_scale(values) if suits_log(values) else linear_scale(values, from_zero=from_zero)


def _axis_name(name: str, unit: Unit, *, is_log: bool) -> str:
    full_name = f"{name}, {unit.suffix}" if unit.suffix else name
    return f"{full_name} (logarithmic)" if is_log else full_name


def _curve(frame: Frame, each: Line, kind: str) -> Markup:
    """Return a line, interrupted where figures are not numbers, with a mark at each figure."""
    parts = []
    runs = _runs(each.points)
    marks = len(each.points) <= _MOST_MARKERS
    for run in runs:
        points = _thinned([(frame.x.place(x), frame.y.place(y)) for x, y in run])
        if len(points) > 1:
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            parts.append(element("path", {"d": f"M{path}", "class": f"line {kind}"}))
        if marks or len(points) == 1:
            parts += [
                element("circle", {"cx": x, "cy": y, "r": 2.5, "class": f"mark {kind}"})
                for x, y in points
            ]
    return group("curve", *parts)


def _runs(points: Iterable[Point]) -> list[list[Point]]:
    """Return points that follow each other, a list for each run without a gap."""
    runs: list[list[Point]] = [[]]
    for x, y in points:
        if is_shown(y):
            runs[-1].append((x, y))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _thinned(points: list[Point]) -> list[Point]:
    """Return no more points than can be seen: of each stretch its ends, highest and lowest."""
    if len(points) <= _MOST_POINTS:
        return points
    every = -(-len(points) // (_MOST_POINTS // 4))
    kept: list[Point] = []
    for start in range(0, len(points), every):
        part = points[start : start + every]
        outer = {0, len(part) - 1}
        outer.add(min(range(len(part)), key=lambda number: part[number][1]))
        outer.add(max(range(len(part)), key=lambda number: part[number][1]))
        kept += [part[number] for number in sorted(outer)]
    return kept


def _gaps(frame: Frame, lines: Sequence[Line]) -> Markup:
    """Shade the epochs in which a figure is not a number."""
    bad = sorted({x for each in lines for x, y in each.points if not is_shown(y)})
    parts = []
    half = 0.5 * _spacing(lines)
    while bad:
        last = first = bad.pop(0)
        while bad and bad[0] <= last + 2 * half + 1e-9:
            last = bad.pop(0)
        start, end = frame.x.place(first - half), frame.x.place(last + half)
        text = hint(f"not a number in epochs {first:.0f} to {last:.0f}")
        height = frame.y.start - frame.y.end
        parts.append(rectangle(start, frame.y.end, max(2.0, end - start), height, "gap", text))
    return group("gaps", *parts)


def _spacing(lines: Sequence[Line]) -> float:
    """Return the least distance of two epochs."""
    epochs = sorted({x for each in lines for x, _ in each.points})
    return min((b - a for a, b in pairwise(epochs)), default=1.0)


def _end_labels(frame: Frame, ends: Sequence[_End], unit: Unit) -> Markup:
    """Write names and newest figures at the ends of lines, none upon another."""
    wanted = [frame.y.place(each.value) for each in ends]
    low, high = frame.y.end, frame.y.start
    places = apart(wanted, _LABEL_GAP, low, max(high, low + (len(ends) - 1) * _LABEL_GAP))
    parts = [
        words(frame.x.end + 8, at, each.text(unit), kind=f"end {each.kind}".rstrip())
        for each, at in zip(ends, places, strict=True)
    ]
    return group("ends", *parts)


def _hints(frame: Frame, lines: Sequence[Line], unit: Unit, top: float) -> Markup:
    """Cover the chart with strips that tell the figures of an epoch where the pointer rests."""
    figures: dict[float, list[str]] = {}
    for each in lines:
        for x, y in each.points:
            text = Unit(unit.suffix).text(y)
            figures.setdefault(x, []).append(f"{each.name}: {text}")
    epochs = sorted(figures)[:: max(1, -(-len(figures) // _MOST_HINTS))]
    parts = []
    for number, epoch in enumerate(epochs):
        at = frame.x.place(epoch)
        before = frame.x.place(epochs[number - 1]) if number else frame.x.start
        behind = frame.x.place(epochs[number + 1]) if epochs[number + 1 :] else frame.x.end
        start = (before + at) / 2 if number else before
        end = (at + behind) / 2 if epochs[number + 1 :] else behind
        text = hint("\n".join([f"epoch {epoch:.0f}", *figures[epoch]]))
        parts.append(rectangle(start, top, end - start, _HEIGHT, "strip", text))
    return group("strips", *parts)
