"""The page: one HTML file that needs no other, no network and no program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from .charts import Chart, Document, density_charts, drift_charts, learning_charts
from .cost_charts import byte_charts, staleness_charts, time_charts
from .headlines import Headline, headlines
from .markup import Markup, element, joined
from .stylesheet import STYLE

# Nothing but this page's own styles: neither programs nor anything from elsewhere
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def make_page(document: Document, *, figures_file: str) -> str:
    """Return the page of a document.

    Args:
        document: The figures, as in the JSON file.
        figures_file: The name of that file, which lies beside the page.
    """
    title = document["title"]
    head = element(
        "head",
        None,
        _empty("meta", {"charset": "utf-8"}),
        _empty("meta", {"http-equiv": "Content-Security-Policy", "content": _POLICY}),
        _empty("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("title", None, title),
        element("style", None, Markup(STYLE)),
    )
    sections = (
        ("Learning", learning_charts(document)),
        ("Bytes", byte_charts(document)),
        ("Time", time_charts(document)),
        ("What travels", density_charts(document)),
        ("Age and error", [*staleness_charts(document), *drift_charts(document)]),
    )
    body = element(
        "body",
        None,
        element("header", None, element("h1", None, title), _subtitle(document, figures_file)),
        _headlines(headlines(document)),
        element("main", None, *(_section(*each) for each in sections), _absent(document)),
        _table("Options", document["options"]),
        _table("Versions", document["versions"]),
    )
    return f"<!DOCTYPE html>\n{element('html', {'lang': 'en'}, head, body)}\n"


def _empty(name: str, attributes: Mapping[str, str]) -> Markup:
    """Return an element that HTML knows to be empty."""
    return Markup(element(name, attributes).removesuffix(f"></{name}>") + " />")


def _subtitle(document: Document, figures_file: str) -> Markup:
    ranks, epochs = document["ranks"], [each["epoch"] for each in document["epochs"]]
    parts = [
        f"{ranks} rank" + ("s" if ranks > 1 else ""),
        f"epochs {epochs[0]} to {epochs[-1]}" if epochs[1:] else f"{len(epochs)} epochs",
        document["created"],
    ]
    if len(epochs) == 1:
        parts[1] = f"epoch {epochs[0]}"
    link = element("a", {"href": figures_file}, figures_file)
    return element("p", {"class": "soft"}, " · ".join(parts), " · all figures: ", link)


def _headlines(found: Sequence[Headline]) -> Markup:
    tiles = []
    for each in found:
        parts = [
            element("dt", None, each.name),
            element("dd", {"class": "value"}, each.value),
            element("dd", {"class": "detail"}, each.detail) if each.detail else "",
        ]
        tiles.append(element("div", None, *parts))
    return element("dl", {"class": "headlines"}, *tiles) if tiles else joined()


def _section(title: str, charts: Sequence[Chart]) -> Markup:
    if not charts:
        return joined()
    figures = (
        element(
            "figure",
            {"id": each.name},
            element(
                "figcaption",
                None,
                element("h3", None, each.title),
                element("p", {"class": "note"}, each.note) if each.note else "",
            ),
            each.picture,
        )
        for each in charts
    )
    inner = element("div", {"class": "charts"}, *figures)
    return element("section", None, element("h2", None, title), inner)


def _absent(document: Document) -> Markup:
    """Say why there are no figures where one may look for some."""
    epochs = document["epochs"]
    texts = []
    if not epochs:
        texts.append("No epoch was added to this report.")
    elif document["ranks"] == 1:
        texts.append("One rank exchanges nothing: there are no figures of bytes.")
    elif not any("gradients" in each or "halo" in each for each in epochs):
        texts.append("No optimizer and no halo exchange was told: there are no figures of bytes.")
    return joined(*(element("p", {"class": "soft absent"}, text) for text in texts))


def _table(title: str, values: Mapping[str, str]) -> Markup:
    if not values:
        return joined()
    rows = (
        element("tr", None, element("th", {"scope": "row"}, name), element("td", None, value))
        for name, value in values.items()
    )
    table = element("table", None, element("tbody", None, *rows))
    return element("details", None, element("summary", None, title), table)
