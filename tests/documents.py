"""The documents, and the blocks of code in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [ROOT / "README.md", *PAGES]

_BLOCK = re.compile(r'^```(\w*)(?: title="([^"\n]+)")? *\n(.*?)^```', re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a document.

    Attributes:
        language: As it stands behind the fence; empty for what a program prints.
        title: The name of the file that the block is, whole; empty for an excerpt.
        text: What is inside.
    """

    language: str
    title: str
    text: str


def blocks_of(document: Path) -> list[Block]:
    """Return the fenced blocks of a document that are not part of a list."""
    return [Block(*found) for found in _BLOCK.findall(document.read_text())]


def programs_of(page: str) -> dict[str, str]:
    """Return the programs of a page of docs/, by the names of their files."""
    blocks = blocks_of(ROOT / "docs" / page)
    return {block.title: block.text for block in blocks if block.title}


def printed_by(page: str, program: str) -> str:
    """Return what a page says that one of its programs prints: the next block without language."""
    blocks = blocks_of(ROOT / "docs" / page)
    place = [block.title for block in blocks].index(program)
    return next(block.text for block in blocks[place:] if not block.language)
