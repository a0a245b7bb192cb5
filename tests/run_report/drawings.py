"""Reads drawings: their elements, and whether each lies within the picture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from xml.etree import ElementTree

from horovod_sylvie.run_report.markup import Markup

NAMESPACE = "{http://www.w3.org/2000/svg}"
Element = ElementTree.Element


def parsed(drawing: Markup) -> Element:
    """Parse a drawing, which must be well-formed."""
    return ElementTree.fromstring(str(drawing))


def elements(root: Element, name: str, kind: str = "") -> list[Element]:
    """Return the elements of a name that have a class."""
    return [
        each
        for each in root.iter(f"{NAMESPACE}{name}")
        if not kind or kind in each.get("class", "").split()
    ]


def number(each: Element, name: str) -> float:
    return float(each.attrib[name])


def texts(root: Element, kind: str = "") -> list[str]:
    return [each.text or "" for each in elements(root, "text", kind)]


def points_of(root: Element) -> Iterator[tuple[float, float]]:
    """Yield the corners of everything that is drawn, and both ends of every text."""
    for each in elements(root, "rect"):
        x, y = number(each, "x"), number(each, "y")
        assert number(each, "width") >= 0 and number(each, "height") >= 0
        yield from ((x, y), (x + number(each, "width"), y + number(each, "height")))
    for each in elements(root, "line"):
        yield from (
            (number(each, "x1"), number(each, "y1")),
            (number(each, "x2"), number(each, "y2")),
        )
    for each in elements(root, "circle"):
        yield number(each, "cx"), number(each, "cy")
    for each in elements(root, "path"):
        for x, y in re.findall(r"([-\d.]+) ([-\d.]+)", each.attrib["d"]):
            yield float(x), float(y)
    for each in elements(root, "text"):
        width = 6.4 * len(each.text or "")  # narrower than it may be: labels beside lines may touch
        x, y = number(each, "x"), number(each, "y")
        before = {"start": 0.0, "middle": 0.5, "end": 1.0}[each.attrib["text-anchor"]] * width
        yield from ((x - before, y - 6), (x - before + width, y + 6))


def assert_inside(root: Element) -> None:
    """Check that everything lies within the picture; labels at its edge may lean out a little."""
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    for x, y in points_of(root):
        assert left - 8 <= x <= left + width + 8, (x, y)
        assert top <= y <= top + height, (x, y)


def assert_no_text_upon_another(root: Element, kind: str) -> None:
    places = sorted(number(each, "y") for each in elements(root, "text", kind))
    assert all(b - a >= 12 for a, b in pairwise(places)), places
