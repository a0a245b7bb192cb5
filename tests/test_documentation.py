"""Links between the documents lead somewhere: to a file that exists, and to a heading in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def prose_of(text: str) -> str:
    """Return a document without its blocks of code."""
    return re.sub(r"^ *(```|~~~).*?^ *\1", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors_of(text: str) -> set[str]:
    """Return the anchors that a site makes of headings; one that comes again gets a number."""
    anchors: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *#*$", prose_of(text), flags=re.MULTILINE):
        shown = LINK.sub(lambda link: link[0][1 : link[0].index("](")], heading)
        anchor = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        names = [anchor, *(f"{anchor}-{number}" for number in range(1, len(anchors) + 1))]
        anchors.add(next(name for name in names if name not in anchors))
    return anchors


def broken_links(document: Path) -> Iterator[str]:
    """Yield the relative links of a document that lead nowhere."""
    text = re.sub(r"`[^`\n]*`", "", prose_of(document.read_text()))
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and anchor not in anchors_of(target.read_text()):
            yield f"{link}: no such heading"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_of_a_document_lead_somewhere(document: Path) -> None:
    broken = list(broken_links(document))
    assert not broken, f"{document.relative_to(ROOT)}: " + "; ".join(broken)


def test_broken_links_of_a_known_document_are_found(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text(
        "# What `f(x)` does, in short\n## Twice\n## Twice\n"
        "[1](a.md) [2](#twice-1) [`c`](a.md#what-fx-does-in-short) [3](https://site/#x)\n"
        "[4](b.md) [5](#thrice) [6](a.md#twice-2) `[7](c.md)`\n```\n# Thrice\n[8](d.md)\n```\n"
    )
    assert list(broken_links(document)) == [
        "b.md: no such file",
        "#thrice: no such heading",
        "a.md#twice-2: no such heading",
    ]
