"""Elements: what is not markup is escaped, and what is written can be parsed."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from horovod_sylvie.run_report.markup import Markup, element, escape, joined, number_text

HOSTILE = "</title><script>alert('x')</script> & \"quoted\" <b>"


def test_text_and_attributes_come_back_as_they_were() -> None:
    root = ElementTree.fromstring(element("p", {"title": HOSTILE}, HOSTILE))
    assert (root.text, root.get("title")) == (HOSTILE, HOSTILE)
    assert list(root) == []


def test_hostile_text_opens_no_element_in_html() -> None:
    opened: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            opened.append(tag)

    Parser().feed(element("div", {"class": HOSTILE}, element("i", None, HOSTILE)))
    assert opened == ["div", "i"]


def test_markup_is_not_escaped_again() -> None:
    inner = element("b", None, "1 < 2")
    assert element("p", None, inner, " & ") == "<p><b>1 &lt; 2</b> &amp; </p>"
    assert escape(inner) is inner
    assert isinstance(joined("a", inner), Markup)


@pytest.mark.parametrize("text", ["a\x00b", "a\x1bb", "a\udc80b", "a\ufffeb", "a\x7fb"])
def test_characters_that_no_document_may_hold_are_replaced(text: str) -> None:
    written = element("p", None, text)
    assert ElementTree.fromstring(written).text == "a\ufffdb"
    assert written.encode("utf-8")


def test_lines_and_tabs_are_kept() -> None:
    assert ElementTree.fromstring(element("p", None, "a\n\tb")).text == "a\n\tb"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12, "12"), (12.0, "12"), (-0.5, "-0.5"), (1 / 3, "0.33"), (99.999, "100")],
)
def test_coordinates_are_short(value: float, text: str) -> None:
    assert number_text(value) == text
