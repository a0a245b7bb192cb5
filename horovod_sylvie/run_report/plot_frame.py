"""What charts have in common: their size, axes, grid and legend.

Colours are names of classes, `s0` to `s6`, which the page's style sheet gives a meaning, another
one in the dark. Sizes are pixels of the drawing, which a page may scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from .markup import Markup, element, joined
from .scale import Scale

WIDTH: Final = 640.0
LINE_HEIGHT: Final = 16.0
NUM_COLOURS: Final = 7
# How wide a character is on average, at 12 pixels, in wide ones of the fonts that systems have
_CHARACTER: Final = 6.9
_STRONG_CHARACTER: Final = 7.7
_SWATCH: Final = 18.0

Anchor = Literal["start", "middle", "end"]


def width_of(text: str, *, is_strong: bool = False) -> float:
    """Return about how wide a text is."""
    return (_STRONG_CHARACTER if is_strong else _CHARACTER) * len(text)


def shortened(text: str, longest: int) -> str:
    """Return a text without its middle where it is too long: names differ at their ends."""
    if len(text) <= longest:
        return text
    kept = longest - 1
    return f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"


def colour(number: int) -> str:
    """Return the class of a colour."""
    return f"s{number % NUM_COLOURS}"


def drawing(name: str, label: str, height: float, *children: str) -> Markup:
    """Return a picture.

    Args:
        name: Of the chart: its class.
        label: What it shows, for those who cannot see it.
        height: Of the picture.
        children: Its elements.
    """
    attributes: dict[str, str | float] = {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": f"0 0 {WIDTH:.0f} {height:.0f}",
        "class": f"chart {name}",
        "role": "img",
        "aria-label": label,
    }
    return element("svg", attributes, *children)


def words(x: float, y: float, text: str, *, anchor: Anchor = "start", kind: str = "") -> Markup:
    """Return a text in a picture. `y` is its middle; `kind` its class."""
    attributes: dict[str, str | float] = {"x": x, "y": y, "dy": "0.35em", "text-anchor": anchor}
    if kind:
        attributes["class"] = kind
    return element("text", attributes, text)


def hint(text: str) -> Markup:
    """Return what a browser shows where the pointer rests on the element around it."""
    return element("title", None, text)


def rectangle(x: float, y: float, width: float, height: float, kind: str, *children: str) -> Markup:
    """Return a rectangle of a class."""
    attributes: dict[str, str | float] = {"x": x, "y": y, "width": width, "height": height}
    attributes["class"] = kind
    return element("rect", attributes, *children)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """Return a straight line of a class."""
    return element("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": kind})


def legend(
    names: Sequence[tuple[str, str]], shape: Literal["line", "box"], *, left: float = 0.0
) -> tuple[Markup, float]:
    """Return a legend, and how high it is.

    Args:
        names: What each class stands for: class and name.
        shape: How the classes look in the picture.
        left: Where it begins.
    """
    parts, x, y = [], left, LINE_HEIGHT / 2
    for kind, full_name in names:
        name = shortened(full_name, 36)
        width = _SWATCH + 6 + width_of(name) + 16
        if x > left and x + width > WIDTH:
            x, y = left, y + LINE_HEIGHT
        if shape == "line":
            parts.append(line(x, y, x + _SWATCH, y, f"line {kind}"))
        else:
            parts.append(rectangle(x + 4, y - 5, 10, 10, f"bar {kind}"))
        parts.append(words(x + _SWATCH + 6, y, name, kind="legend"))
        x += width
    return element("g", {"class": "legend"}, *parts), y + LINE_HEIGHT / 2 if parts else 0.0


@dataclass(frozen=True)
class Frame:
    """Where figures are drawn, and by which scales.

    Attributes:
        x: From left to right.
        y: From the bottom up.
        x_name: What is along the bottom.
        y_name: What is along the side, with its unit.
    """

    x: Scale
    y: Scale
    x_name: str
    y_name: str

    def draw(self) -> Markup:
        """Return grid, axes and their labels."""
        left, right = self.x.start, self.x.end
        bottom, top = self.y.start, self.y.end
        parts = []
        for value, label in self.y.ticks:
            at = self.y.place(value)
            parts.append(line(left, at, right, at, "grid"))
            parts.append(words(left - 8, at, label, anchor="end", kind="tick"))
        parts.append(line(left, bottom, right, bottom, "axis"))
        for value, label in self.x.ticks:
            at = self.x.place(value)
            parts.append(line(at, bottom, at, bottom + 4, "axis"))
            parts.append(words(at, bottom + 14, label, anchor="middle", kind="tick"))
        parts.append(words(left, top - 14, self.y_name, kind="axis-name"))
        parts.append(words(right, bottom + 30, self.x_name, anchor="end", kind="axis-name"))
        return element("g", {"class": "frame"}, *parts)


def label_margin(scale: Scale) -> float:
    """Return how much room the labels at the side of a chart take."""
    return 12 + max((width_of(label) for _, label in scale.ticks), default=0.0)


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return places near those wanted, in the same order, that are a gap apart.

    Args:
        wanted: Where labels would stand best, in any order.
        gap: The least distance of two labels.
        low: The least place.
        high: The greatest, where all of them have room.
    """
    order = sorted(range(len(wanted)), key=lambda number: wanted[number])
    places = list(wanted)
    at = low
    for number in order:
        at = places[number] = max(wanted[number], at)
        at += gap
    at = high
    for number in reversed(order):
        at = places[number] = max(low, min(places[number], at))
        at -= gap
    return places


def group(kind: str, *children: str) -> Markup:
    """Return elements as one of a class."""
    return element("g", {"class": kind}, joined(*children))
