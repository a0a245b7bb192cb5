"""Which charts a report has, made of its document alone; those without figures are left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from .line_chart import Line, line_chart
from .markup import Markup
from .plot_frame import NUM_COLOURS
from .scale import is_shown
from .units import PERCENT

Document = dict[str, Any]
Epoch = dict[str, Any]
# Where nobody said more: what is left out stands in the file
_MOST_LINES: Final = 6


@dataclass(frozen=True)
class Chart:
    """One figure of the page.

    Attributes:
        name: Its id.
        title: What it shows, in words.
        note: What one should know to read it; may be empty.
        picture: The drawing.
    """

    name: str
    title: str
    note: str
    picture: Markup


def series(name: str, document: Document, read: Callable[[Epoch], float | None]) -> Line:
    """Return a line.

    Args:
        name: Of the line.
        document: The report's.
        read: Reads a figure of an epoch: NaN for what is no number, None where there is none.
    """
    read_of = ((float(each["epoch"]), read(each)) for each in document["epochs"])
    return Line(name, tuple((epoch, value) for epoch, value in read_of if value is not None))


def span_of(document: Document) -> tuple[int, int]:
    """Return the first and the last epoch of a report that has some: every axis is of all."""
    return document["epochs"][0]["epoch"], document["epochs"][-1]["epoch"]


def names_of(document: Document, *path: str) -> list[str]:
    """Return the names below a place in any epoch, in the order in which they came."""
    names: dict[str, None] = {}
    for each in document["epochs"]:
        place = each
        for step in path:
            place = place.get(step, {})
        names |= dict.fromkeys(place)
    return list(names)


def reader(*path: str) -> Callable[[Epoch], float | None]:
    """Return what reads the figure at a place of an epoch, as `series` wants it."""

    def read(epoch: Epoch) -> float | None:
        place: Any = epoch
        for step in path:
            if step not in place:
                return None
            place = place[step]
        return math.nan if place is None else float(place)

    return read


def learning_charts(document: Document) -> list[Chart]:
    """Return what the training reached: loss, accuracy, other scores."""
    charts = []
    loss = series("loss", document, reader("loss"))
    if loss.points:
        picture = line_chart(
            "loss", "Loss over epochs", [loss], y_name="loss", epochs=span_of(document)
        )
        charts.append(Chart("loss", "Loss", _gap_note([loss]), picture))
    accuracies = [
        series(name, document, reader("accuracy", name))
        for name in names_of(document, "accuracy")[:NUM_COLOURS]
    ]
    if accuracies:
        picture = line_chart(
            "accuracy",
            "Accuracy over epochs",
            accuracies,
            y_name="accuracy",
            unit=PERCENT,
            epochs=span_of(document),
        )
        charts.append(Chart("accuracy", "Accuracy", _gap_note(accuracies), picture))
    for number, name in enumerate(names_of(document, "scores")):
        line = series(name, document, reader("scores", name))
        picture = line_chart(
            f"score-{number}", f"{name} over epochs", [line], y_name=name, epochs=span_of(document)
        )
        charts.append(Chart(f"score-{number}", name, _gap_note([line]), picture))
    return charts


def density_charts(document: Document) -> list[Chart]:
    """Return how much travels: densities of gradients, bits of halo rows."""
    charts = []
    density = series("all elements", document, reader("gradients", "density"))
    if density.points:
        lines = [density]
        if names_of(document, "gradients", "group_densities")[1:]:
            lines.append(series("densest group", document, _densest))
            lines.append(series("sparsest group", document, _sparsest))
        picture = line_chart(
            "density",
            "Share of gradient elements that travel, over epochs",
            lines,
            y_name="elements that travel",
            unit=PERCENT,
            epochs=span_of(document),
            from_zero=True,
        )
        note = "At the end of each epoch. A group is what travels in one message."
        note += _plans(document)
        charts.append(Chart("density", "Density of gradients", note, picture))
    bits = [series(way, document, reader("halo", f"{way}_bits")) for way in ("forward", "backward")]
    bits = [line for line in bits if line.points]
    if bits:
        picture = line_chart(
            "bits",
            "Bits per element of halo rows over epochs",
            bits,
            y_name="bits per element",
            epochs=span_of(document),
            from_zero=True,
        )
        note = (
            "Of rows forward and their gradients backward, headers and all; full precision has 32."
        )
        charts.append(Chart("bits", "Bits of halo rows", note, picture))
    return charts


def _densest(epoch: Epoch) -> float | None:
    return max(epoch["gradients"]["group_densities"].values()) if "gradients" in epoch else None


def _sparsest(epoch: Epoch) -> float | None:
    return min(epoch["gradients"]["group_densities"].values()) if "gradients" in epoch else None


def _plans(document: Document) -> str:
    plans = [each["gradients"]["plan"] for each in document["epochs"] if "gradients" in each]
    changes = sum(a != b for a, b in pairwise(plans))
    if not changes:
        return ""
    return f" {changes} of {len(plans)} epochs ended with another plan than the one before."


def drift_charts(document: Document) -> list[Chart]:
    """Return how much halo rows changed, and what selection left behind."""
    charts = []
    names = names_of(document, "halo", "drift")
    drifts = _largest([series(name, document, reader("halo", "drift", name)) for name in names])
    if drifts:
        bound = document.get("max_drift")
        picture = line_chart(
            "drift",
            "Drift of halo rows over epochs",
            drifts,
            y_name="relative change since the epoch before",
            epochs=span_of(document),
            from_zero=True,
            reference=None if bound is None else ("bound", bound),
        )
        note = "Rows whose drift is at most the bound are used one epoch old."
        charts.append(Chart("drift", "Drift", note + _left_out(names, drifts), picture))
    names = names_of(document, "gradients", "deltas")
    deltas = _largest(
        [series(name, document, reader("gradients", "deltas", name)) for name in names]
    )
    if deltas:
        picture = line_chart(
            "delta",
            "Delta of Assumption 1 over epochs",
            deltas,
            y_name="delta",
            epochs=span_of(document),
            from_zero=True,
            reference=("as a random choice", 1.0),
        )
        note = (
            "What top-k leaves out of the sum over ranks, against what a random choice of as many "
            "elements leaves out. The theory asks for at most 1."
        )
        charts.append(
            Chart("delta", "Error of the selection", note + _left_out(names, deltas), picture)
        )
    return charts


def _largest(lines: Sequence[Line]) -> list[Line]:
    """Return the lines that are highest at their ends."""

    def end(line: Line) -> float:
        return next((y for _, y in reversed(line.points) if is_shown(y)), -math.inf)

    chosen = sorted((line for line in lines if line.points), key=end, reverse=True)[:_MOST_LINES]
    names = {line.name for line in chosen}
    return [line for line in lines if line.name in names]


def _left_out(names: Sequence[str], lines: Sequence[Line]) -> str:
    if len(names) == len(lines):
        return ""
    return f" The {len(lines)} largest of {len(names)}; the others are in the JSON file."


def _gap_note(lines: Sequence[Line]) -> str:
    bad = [epoch for line in lines for epoch, value in line.points if not is_shown(value)]
    return f"Not a number where shaded, first in epoch {min(bad):.0f}." if bad else ""
