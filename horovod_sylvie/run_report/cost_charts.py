"""Charts of what exchanges cost: bytes by layer, time by epoch and rank, epochs with old rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .bar_rows import MOST_ROWS, Row, remaining_rows, stacked_rows
from .charts import Chart, Document
from .column_chart import MOST_COLUMNS, Column, column_chart
from .epoch_grid import Track, epoch_grid
from .markup import Markup
from .units import bytes_text, second_unit, seconds_text, times_less

# Figure in the file, class and name of each part of an epoch's time
_PARTS: Final = (
    ("computing_s", "rest", "computing"),
    ("selecting_s", "s0", "selecting"),
    ("encoding_s", "s4", "encoding rows"),
    ("waiting_for_gradients_s", "s1", "waiting for gradients"),
    ("waiting_for_rows_s", "s3", "waiting for rows"),
    ("decoding_s", "s2", "decoding"),
)

Sizes = list[tuple[str, float, float]]


def byte_charts(document: Document) -> list[Chart]:
    """Return what travelled, layer by layer, against what travels uncompressed."""
    charts = []
    groups = [
        (each["name"], each["bytes_sent_per_step"], each["bytes_dense_per_step"])
        for each in document["gradient_groups"]
    ]
    if any(dense for _, _, dense in groups):
        note = "Per step and rank, against a ring allreduce of every element as float32."
        if any(each.get("gradients", {}).get("plan") for each in document["epochs"]):
            note += " Groups are those of the newest plan."
        charts.append(
            Chart(
                "gradient-bytes",
                "Bytes of gradients",
                note,
                _bytes_picture("gradient-bytes", groups, "dense float32"),
            )
        )
    layers = [
        (
            f"{each['layer']}.{each['direction']}",
            each["bytes_sent"] / max(1, each["epochs"]),
            each["bytes_full_precision"] / max(1, each["epochs"]),
        )
        for each in document["halo_layers"]
        if each["direction"] in ("forward", "backward")
    ]
    if any(full for _, _, full in layers):
        note = "Per epoch of training, all ranks together." + _beside(document)
        charts.append(
            Chart(
                "halo-bytes",
                "Bytes of halo rows",
                note,
                _bytes_picture("halo-bytes", layers, "full precision"),
            )
        )
    return charts


def _bytes_picture(name: str, sizes: Sizes, whole: str) -> Markup:
    """Draw the largest by what they are uncompressed, and tell the sum of the others."""
    order = sorted(sizes, key=lambda each: each[2], reverse=True)
    kept = len(order) if len(order) <= MOST_ROWS + 1 else MOST_ROWS
    rows = [Row(each, (full, sent), _sizes_text(sent, full)) for each, sent, full in order[:kept]]
    if others := order[kept:]:
        text = _sizes_text(sum(sent for _, sent, _ in others), sum(full for _, _, full in others))
        rows.append(Row(f"{len(others)} others", (), text))
    kinds = (("rest", whole), ("s0", "sent"))
    return remaining_rows(name, f"Bytes by layer: {whole}, and sent", kinds, rows)


def _sizes_text(sent: float, full: float) -> str:
    less = times_less(sent, full)
    return f"{bytes_text(full)} → {bytes_text(sent)}" + (f" ({less})" if less else "")


def _beside(document: Document) -> str:
    """Say what else was sent."""
    totals = dict.fromkeys(("features", "evaluation"), 0.0)
    for each in document["halo_layers"]:
        if each["direction"] in totals:
            totals[each["direction"]] += each["bytes_sent"]
    texts = []
    if totals["features"]:
        texts.append(f"{bytes_text(totals['features'])} of features, fetched once")
    if totals["evaluation"]:
        texts.append(f"{bytes_text(totals['evaluation'])} for all evaluations")
    return f" Beside them: {' and '.join(texts)}, in full precision." if texts else ""


def time_charts(document: Document) -> list[Chart]:
    """Return how epochs were spent, over epochs and by rank."""
    known = [each for each in document["epochs"] if "seconds" in each]
    used = [part for part in _PARTS if any(part[0] in each["seconds"] for each in known)]
    if not used:
        return []
    kinds = [(kind, name) for _, kind, name in used]
    columns = [
        Column(
            each["epoch"],
            each["epoch"],
            tuple(each["seconds"].get(figure, 0.0) for figure, _, _ in used),
        )
        for each in known
    ]
    longest = max(sum(each.parts) for each in columns)
    picture = column_chart(
        "time",
        "How the time of an epoch was spent, over epochs",
        kinds,
        columns,
        y_name="time of an epoch" if "rest" in dict(kinds) else "time of exchanges in an epoch",
        unit=second_unit(longest),
    )
    note = "Means over ranks."
    if "rest" in dict(kinds):
        note += " Computing is whatever is no exchange, reading data included."
    if len(columns) > MOST_COLUMNS:
        note += f" A column is the mean of up to {-(-len(columns) // MOST_COLUMNS)} epochs."
    charts = [Chart("time", "Time of an epoch", note, picture)]
    if document["ranks"] > 1 and document["time_by_rank"]:
        charts.append(_rank_chart(document, used))
    return charts


def _rank_chart(document: Document, used: Sequence[tuple[str, str, str]]) -> Chart:
    ranks = document["time_by_rank"]
    shown = sorted(ranks, key=lambda each: each["computing_s"], reverse=True)[:MOST_ROWS]
    rows = [
        Row(
            f"rank {each['rank']}",
            tuple(each[figure] for figure, _, _ in used),
            seconds_text(each["epoch_s"]),
        )
        for each in sorted(shown, key=lambda each: each["rank"])
    ]
    note = "Means over epochs. The rank that waits least is the one that others wait for."
    if len(ranks) > len(shown):
        note += f" The {len(shown)} of {len(ranks)} ranks that compute longest."
    picture = stacked_rows(
        "rank-time",
        "How the time of an epoch was spent, by rank",
        [(kind, name) for _, kind, name in used],
        rows,
    )
    return Chart("rank-time", "Time by rank", note, picture)


def staleness_charts(document: Document) -> list[Chart]:
    """Return which exchanges computed with rows of the epoch before, and when."""
    known = {each["epoch"]: each["halo"] for each in document["epochs"] if "halo" in each}
    names = dict.fromkeys(name for each in known.values() for name in each["exchanges"])
    if not names:
        return []
    tracks = [
        Track(
            name,
            frozenset(epoch for epoch, each in known.items() if name in each["stale"]),
            frozenset(epoch for epoch, each in known.items() if name in each["exchanges"]),
        )
        for name in names
    ]
    note = "Which exchanges computed with the rows of the epoch before."
    if len(tracks) > MOST_ROWS:
        tracks = sorted(tracks, key=lambda each: len(each.filled), reverse=True)[:MOST_ROWS]
        note += f" The {MOST_ROWS} of {len(names)} that did so most."
    if not any(each.filled for each in tracks):
        note = "No exchange computed with the rows of the epoch before."
    picture = epoch_grid(
        "staleness",
        "Epochs in which each exchange used old rows",
        ("one epoch old", "of this epoch"),
        sorted(known),
        tracks,
    )
    return [Chart("staleness", "Age of halo rows", note, picture)]
