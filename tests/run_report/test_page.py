"""The page: parsed by two parsers, complete, escaped, and alone."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from horovod_sylvie.run_report.page import make_page
from tests.run_report.documents import make_document, without

HOSTILE = (
    '</style></svg><script src="https://x/y.js">alert(1)</script><img src=x onerror="1">&amp;{}'
)
EMPTY = {"meta"}


class Reader(HTMLParser):
    """Reads a page as a browser begins to, and notes what it finds."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in EMPTY:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), name
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "action", "data"):
                self.links.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(document: dict[str, Any]) -> Reader:
    page = make_page(document, figures_file="report.json")
    assert page.startswith('<!DOCTYPE html>\n<html lang="en">')
    ElementTree.fromstring(page)
    reader = Reader(page)
    assert reader.open == []
    assert len(set(reader.ids)) == len(reader.ids)
    return reader


def test_page_has_every_chart_once() -> None:
    reader = read(make_document())
    assert reader.ids == [
        *["loss", "accuracy", "score-0", "gradient-bytes", "halo-bytes", "time", "rank-time"],
        *["density", "bits", "staleness", "drift", "delta"],
    ]
    text = " ".join(reader.words)
    for title in ("Learning", "Bytes", "Time", "What travels", "Age and error", "Options"):
        assert title in text
    assert "2 ranks · epochs 1 to 6 · 2026-01-01 12:00 UTC" in text


def test_page_needs_nothing_from_elsewhere() -> None:
    page = make_page(make_document(), figures_file="report.json")
    reader = Reader(page)
    assert reader.links == ["report.json"]
    assert reader.tags.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "image"})
    assert not re.search(r"url\(|@import|@font-face", page)
    assert set(re.findall(r"https?://[^\"'\s<]+", page)) == {"http://www.w3.org/2000/svg"}
    assert 'content="default-src &#x27;none&#x27;; style-src &#x27;unsafe-inline&#x27;"' in page
    assert "prefers-color-scheme: dark" in page


def test_hostile_names_are_shown_and_do_nothing() -> None:
    reader = read(make_document(layer=HOSTILE))
    assert reader.tags.isdisjoint({"script", "img"})
    assert reader.links == ["report.json"]
    text = "".join(reader.words)
    assert f"A run of {HOSTILE}" in text
    assert f"perplexity of {HOSTILE.format(0)}" in text
    assert f"{HOSTILE.format(1)}.weight" in text  # in a hint


def test_names_that_no_encoding_knows_are_written() -> None:
    page = make_page(make_document(layer="conv\udce4\x00{}"), figures_file="report.json")
    assert "conv\ufffd\ufffd0.weight" in page
    assert page.encode("utf-8")


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (without(make_document(0, num_layers=0), "seconds"), "No epoch was added"),
        (
            without(make_document(num_ranks=1), "gradients", "halo"),
            "One rank exchanges nothing: there are no figures of bytes.",
        ),
        (
            without(make_document(), "gradients", "halo"),
            "No optimizer and no halo exchange was told",
        ),
    ],
)
def test_absent_figures_are_explained(document: dict[str, Any], text: str) -> None:
    assert text in " ".join(read(document).words)
    assert text not in " ".join(read(make_document()).words)


def test_one_epoch_is_one_epoch() -> None:
    assert "2 ranks · epoch 1 · " in " ".join(read(make_document(1)).words)


def test_classes_of_drawings_have_a_style() -> None:
    page = make_page(make_document(num_layers=7), figures_file="report.json")
    style, _, body = page.partition("</style>")
    for kind in set(re.findall(r'class="(?:bar|line|mark|end) (\w+)"', body)):
        assert f".{kind} {{ --c: var(--{kind}); }}" in style
        assert len(re.findall(rf"--{kind}: #\w{{6}};", style)) == 2  # in the light and in the dark
