"""The figures of a run as one tree of plain values: the JSON file, and all that the page knows.

A figure that was not told is absent. One that is not a number is null.

Shapes: P ranks, E epochs, C columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor

from .epoch_figures import COLUMNS, EpochFigures, Gathered
from .gradient_figures import GradientReader, dense_bytes
from .halo_figures import HaloReader

FORMAT: Final = 1
_EXCHANGING: Final = COLUMNS[1:6]


@dataclass(frozen=True)
class Heading:
    """What a report is about.

    Attributes:
        title: In words.
        created: Date and time, as text.
        options: Of the program, by name.
        versions: Of packages, by name.
    """

    title: str
    created: str
    options: Mapping[str, str]
    versions: Mapping[str, str]


def make_document(
    heading: Heading,
    epochs: Sequence[EpochFigures],
    gathered: Gathered,
    gradients: GradientReader,
    halo: HaloReader,
) -> dict[str, Any]:
    """Return all figures.

    Args:
        heading: What the run is.
        epochs: Rank 0's.
        gathered: Those of all ranks.
        gradients: What rank 0 knows of its optimizer.
        halo: What rank 0 knows of its halo exchange.
    """
    columns = gathered.columns
    num_ranks = columns.shape[0]
    document: dict[str, Any] = {
        "format": FORMAT,
        "title": heading.title,
        "created": heading.created,
        "ranks": num_ranks,
        "versions": dict(heading.versions),
        "options": dict(heading.options),
        "epochs": [_epoch(each, columns[:, place]) for place, each in enumerate(epochs)],
        "time_by_rank": _time_by_rank(columns),
        "gradient_groups": [
            {
                "name": each.name,
                "kind": each.kind,
                "elements": each.num_elements,
                "selected": each.num_selected,
                "bytes_sent_per_step": each.bytes_sent,
                "bytes_dense_per_step": dense_bytes(each.num_elements, num_ranks),
            }
            for each in gradients.groups
        ],
        "halo_layers": _halo_layers(gathered.layers, halo),
    }
    if halo.max_drift is not None and math.isfinite(halo.max_drift):
        document["max_drift"] = halo.max_drift
    return document


def finite(value: float) -> float | None:
    """JSON has neither NaN nor infinity, where training went astray."""
    return value if math.isfinite(value) else None


def _epoch(each: EpochFigures, columns: Tensor) -> dict[str, Any]:
    """Return one epoch: rank 0's figures, and columns of all ranks, [P, C]."""
    epoch: dict[str, Any] = {"epoch": each.epoch}
    if each.loss is not None:
        epoch["loss"] = finite(each.loss)
    if each.accuracy:
        epoch["accuracy"] = {name: finite(value) for name, value in each.accuracy.items()}
    if each.scores:
        epoch["scores"] = {name: finite(value) for name, value in each.scores.items()}
    means = {name: float(columns[:, place].mean()) for place, name in enumerate(COLUMNS)}
    seconds = _seconds(columns)
    if seconds:
        epoch["seconds"] = seconds
    if each.gradients is not None:
        epoch["gradients"] = {
            "steps_seen": each.gradients.num_steps,
            "bytes_sent_per_step": means["gradient_bytes_sent"],
            "bytes_dense_per_step": means["gradient_bytes_dense"],
            "density": each.gradients.density,
            "group_densities": dict(each.gradients.group_densities),
            "deltas": {name: finite(value) for name, value in each.gradients.deltas.items()},
            "plan": each.gradients.plan,
        }
    if each.halo is not None:
        epoch["halo"] = {
            **_halo_bytes(columns),
            "exchanges": list(each.halo.exchanges),
            "stale": list(each.halo.stale),
            "drift": {name: finite(value) for name, value in each.halo.drift.items()},
        }
    return epoch


def _seconds(columns: Tensor) -> dict[str, float]:
    """Return how an epoch's time was spent, means over ranks of columns, [P, C].

    `computing` is whatever is no exchange: forward, backward, step, and reading data.
    """
    known = {
        name: columns[:, place]
        for place, name in enumerate(COLUMNS[:6])
        if not bool(columns[:, place].isnan().any())
    }
    spent = {name: float(values.mean()) for name, values in known.items() if name in _EXCHANGING}
    if "seconds" not in known:
        return spent
    whole = known.pop("seconds")
    exchanging: Any = sum(known.values())
    return {
        "epoch_s": float(whole.mean()),
        "longest_epoch_s": float(whole.max()),
        "computing_s": float((whole - exchanging).clamp(min=0).mean()),
        **spent,
    }


def _halo_bytes(columns: Tensor) -> dict[str, Any]:
    """Return what all ranks sent of halo rows in an epoch, from columns, [P, C]."""
    sums = dict(zip(COLUMNS, columns.sum(dim=0).tolist(), strict=True))
    figures: dict[str, Any] = {}
    for way in ("forward", "backward"):
        sent, full = sums[f"{way}_bytes_sent"], sums[f"{way}_bytes_full_precision"]
        figures[f"{way}_bytes_sent"] = sent
        figures[f"{way}_bytes_full_precision"] = full
        if full:
            figures[f"{way}_bits"] = 32 * sent / full
    return figures


def _time_by_rank(columns: Tensor) -> list[dict[str, float]]:
    """Return how each rank spent an epoch, means over epochs of columns, [P, E, C]."""
    if columns.shape[1] == 0 or bool(columns[:, :, 0].isnan().any()):
        return []
    ranks = []
    for rank, rows in enumerate(columns):
        spent = {
            name: float(rows[:, place].nan_to_num().mean())
            for place, name in enumerate(COLUMNS[:6])
        }
        whole = spent.pop("seconds")
        computing = max(0.0, whole - sum(spent.values()))
        ranks.append({"rank": rank, "epoch_s": whole, "computing_s": computing, **spent})
    return ranks


def _halo_layers(layers: Tensor, halo: HaloReader) -> list[dict[str, Any]]:
    """Return what all ranks sent, by layer and direction, in all epochs; from sums, [L, 2]."""
    return [
        {
            "layer": layer,
            "direction": direction,
            "epochs": halo.num_epochs,
            "bytes_sent": sent,
            "bytes_full_precision": full,
        }
        for (layer, direction), (sent, full) in zip(halo.entries, layers.tolist(), strict=True)
    ]
