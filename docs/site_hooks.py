"""What mkdocs does to a page before it becomes part of the site; see mkdocs.yml."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)\s#]*)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Make links that leave docs/ plain paths: those files are not part of the site.

    Args:
        markdown: A page's text, as it is in the repository.
        page: The page.
    """
    folder = posixpath.dirname(page.file.src_uri)

    def shown(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        return f"`{link[1]}`" if target.startswith("..") else link[0]

    return _LINK.sub(shown, markdown)
