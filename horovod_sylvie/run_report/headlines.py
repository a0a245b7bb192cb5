"""The few figures of a run that one looks for first."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from .charts import Document
from .units import NUMBER, PERCENT, bytes_text, seconds_text, times_less


@dataclass(frozen=True)
class Headline:
    """One figure.

    Attributes:
        name: What it is.
        value: The figure, with its unit.
        detail: What it is to be compared with; may be empty.
    """

    name: str
    value: str
    detail: str = ""


def headlines(document: Document) -> list[Headline]:
    """Return the newest figures of learning, bytes and times; what is not known is left out."""
    epochs = document["epochs"]
    found = [_loss(epochs), *_accuracies(epochs), _gradients(epochs), _halo(epochs), _time(epochs)]
    return [each for each in found if each is not None]


def _loss(epochs: list[dict[str, Any]]) -> Headline | None:
    told = [(each["epoch"], each["loss"]) for each in epochs if "loss" in each]
    if not told:
        return None
    epoch, loss = told[-1]
    if loss is None:
        lost = list(takewhile(lambda each: each[1] is None, reversed(told)))
        first = lost[-1][0]
        return Headline("loss", "not a number", f"since epoch {first}")
    return Headline("loss", NUMBER.text(loss), f"in epoch {epoch}")


def _accuracies(epochs: list[dict[str, Any]]) -> list[Headline]:
    newest: dict[str, tuple[int, float]] = {}
    for each in epochs:
        for name, value in each.get("accuracy", {}).items():
            if value is not None:
                newest[name] = (each["epoch"], value)
    return [
        Headline(
            name if "accuracy" in name else f"{name} accuracy",
            PERCENT.text(value),
            f"in epoch {epoch}",
        )
        for name, (epoch, value) in list(newest.items())[-2:]
    ]


def _gradients(epochs: list[dict[str, Any]]) -> Headline | None:
    newest = next((each["gradients"] for each in reversed(epochs) if "gradients" in each), None)
    if newest is None:
        return None
    sent, dense = newest["bytes_sent_per_step"], newest["bytes_dense_per_step"]
    less = times_less(sent, dense)
    detail = f"{less} than dense" if less else f"dense: {bytes_text(dense)}"
    return Headline("gradients, per step and rank", bytes_text(sent), detail)


def _halo(epochs: list[dict[str, Any]]) -> Headline | None:
    known = [each["halo"] for each in epochs if "halo" in each]
    if not known:
        return None
    sent, full = (
        sum(each[f"{way}_bytes_{kind}"] for each in known for way in ("forward", "backward"))
        / len(known)
        for kind in ("sent", "full_precision")
    )
    less = times_less(sent, full)
    detail = f"{less} than full precision" if less else f"full precision: {bytes_text(full)}"
    return Headline("halo rows, per epoch, all ranks", bytes_text(sent), detail)


def _time(epochs: list[dict[str, Any]]) -> Headline | None:
    known = [each["seconds"] for each in epochs if "epoch_s" in each.get("seconds", {})]
    if not known:
        return None
    waiting = sum(
        value for each in known for name, value in each.items() if name.startswith("waiting")
    )
    share = waiting / max(1e-30, sum(each["epoch_s"] for each in known))
    middle = statistics.median(each["epoch_s"] for each in known)
    has_waits = any(name.startswith("waiting") for each in known for name in each)
    detail = f"{100 * share:.0f} % of it waiting for other ranks" if has_waits else ""
    return Headline("an epoch, median", seconds_text(middle), detail)
