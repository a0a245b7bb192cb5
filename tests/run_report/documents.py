"""Documents of runs that never were, as the page is given them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

WAYS = ("forward", "backward")


def make_document(
    num_epochs: int = 6,
    *,
    num_layers: int = 2,
    num_ranks: int = 2,
    layer: str = "convs.{}",
    loss: Callable[[int], float | None] = lambda epoch: 2.0 / epoch,
) -> dict[str, Any]:
    """Return a document with every kind of figure."""
    layers = [layer.format(number) for number in range(num_layers)]
    return {
        "format": 1,
        "title": f"A run of {layer}",
        "created": "2026-01-01 12:00 UTC",
        "ranks": num_ranks,
        "versions": {"torch": "2.13.0"},
        "options": {"codec": "1", "data": layer},
        "epochs": [make_epoch(epoch, layers, loss) for epoch in range(1, num_epochs + 1)],
        "time_by_rank": [
            {"rank": rank, "epoch_s": 0.3, **spent(0.1 + 0.01 * rank)} for rank in range(num_ranks)
        ],
        "gradient_groups": [
            {
                "name": f"{name}.weight",
                "kind": "TopK",
                "elements": 1000,
                "selected": 10,
                "bytes_sent_per_step": 100.0 * (number + 1),
                "bytes_dense_per_step": 4000.0 * (number + 1),
            }
            for number, name in enumerate(layers)
        ],
        "halo_layers": [
            {
                "layer": name,
                "direction": way,
                "epochs": num_epochs,
                "bytes_sent": 10.0 * num_epochs,
                "bytes_full_precision": 280.0 * num_epochs,
            }
            for name in layers
            for way in (*WAYS, "features", "evaluation")
        ],
        "max_drift": 0.25,
    }


def spent(computing_s: float) -> dict[str, float]:
    return {
        "computing_s": computing_s,
        "selecting_s": 0.01,
        "encoding_s": 0.02,
        "waiting_for_gradients_s": 0.03,
        "waiting_for_rows_s": 0.04,
        "decoding_s": 0.01,
    }


def make_epoch(
    epoch: int, layers: list[str], loss: Callable[[int], float | None]
) -> dict[str, Any]:
    exchanges = [f"{name}.{way}" for name in layers for way in WAYS]
    return {
        "epoch": epoch,
        "loss": loss(epoch),
        "accuracy": {"validation": 1 - 0.5 / epoch, "test": 1 - 0.6 / epoch},
        "scores": {f"perplexity of {layers[0] if layers else ''}": 10.0 / epoch},
        "seconds": {"epoch_s": 0.2, "longest_epoch_s": 0.3, **spent(0.1)},
        "gradients": {
            "steps_seen": 10,
            "bytes_sent_per_step": 1000.0,
            "bytes_dense_per_step": 40000.0,
            "density": 0.02,
            "group_densities": {"a": 1.0, "b": 0.01},
            "deltas": dict.fromkeys(layers, 0.5),
            "plan": "" if epoch < 3 else "plan",
        },
        "halo": {
            "forward_bytes_sent": 100.0,
            "forward_bytes_full_precision": 2800.0,
            "forward_bits": 32 / 28,
            "backward_bytes_sent": 100.0,
            "backward_bytes_full_precision": 2800.0,
            "backward_bits": 32 / 28,
            "exchanges": exchanges,
            "stale": exchanges[:1] if epoch > 2 else [],
            "drift": {name: math.exp(-epoch) for name in exchanges} if epoch > 1 else {},
        },
    }


def without(document: dict[str, Any], *figures: str) -> dict[str, Any]:
    """Return a document whose epochs lack some figures."""
    epochs = [
        {name: figure for name, figure in epoch.items() if name not in figures}
        for epoch in document["epochs"]
    ]
    document = document | {"epochs": epochs}
    if "gradients" in figures:
        document["gradient_groups"] = []
    if "halo" in figures:
        document["halo_layers"] = []
    if "seconds" in figures:
        document["time_by_rank"] = []
    return document
