"""Elements of HTML and SVG as text, in which every text that is not markup itself is escaped.

What is written is well-formed XML too, so that a broken page is found by any parser.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Final

# What XML has no place for: control characters, and halves of pairs, as in odd file names
_NO_TEXT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Markup(str):
    """Text that is markup; any other text is escaped where it meets markup."""

    __slots__ = ()


def escape(text: str) -> Markup:
    """Return a text as markup: escaped, unless it is markup; what cannot be shown is replaced."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(_NO_TEXT.sub("\ufffd", text)))


def element(
    name: str, attributes: Mapping[str, str | float] | None = None, *children: str
) -> Markup:
    """Return an element.

    Args:
        name: Of the element.
        attributes: Values by name; numbers are rounded to a hundredth.
        children: Markup, or texts, which are escaped.
    """
    written = "".join(
        f' {key}="{number_text(value) if isinstance(value, (int, float)) else escape(value)}"'
        for key, value in (attributes or {}).items()
    )
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*parts: str) -> Markup:
    """Return markup of parts in a row."""
    return Markup("".join(escape(part) for part in parts))


def number_text(value: float) -> str:
    """Return a coordinate: a hundredth of a pixel is fine enough."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"
