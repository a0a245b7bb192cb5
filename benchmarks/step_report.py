"""Tables and picture of what `step.py` measured.

    python benchmarks/step_report.py FILE --picture docs/images/step.png

Every time is given as a ratio to a step of the same model in the same job without any exchange.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from launchers import bits_per_second
from matplotlib import pyplot
from ratio_panel import add_legend, draw_ratios
from step_models import MODELS
from step_ways import LAGS, NO_EXCHANGE, STOCK_HOROVOD, WAYS

COLOURS: Final = MappingProxyType(
    {
        STOCK_HOROVOD: "black",
        "DDP": "tab:brown",
        "DDP float16": "tab:cyan",
        "PowerSGD rank 1": "tab:purple",
        "PowerSGD rank 2": "tab:pink",
        "dense float32": "tab:gray",
        "dense float16": "tab:blue",
        "top-k 1 %": "tab:orange",
        "top-k 0.1 %": "tab:red",
        LAGS: "tab:green",
    }
)


def ordered(results: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return jobs as tables list them: by compute, hosts, model and rate."""
    return sorted(
        results.values(),
        key=lambda job: (
            job["compute"],
            job["hosts"],
            MODELS.index(job["model"]),
            bits_per_second(job["rate"]),
        ),
    )


def ratio_of(job: dict[str, Any], way: str) -> float | None:
    """Return how many times as long as without exchange a step takes, or None if unknown."""
    ways = job["ways"]
    if way not in ways or NO_EXCHANGE not in ways:
        return None
    return float(ways[way]["step_s"] / ways[NO_EXCHANGE]["step_s"])


def tables(results: Mapping[str, dict[str, Any]]) -> str:
    """Return a table in Markdown for each compute and number of hosts.

    Args:
        results: Jobs by key.
    """
    grouped: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for job in ordered(results):
        grouped.setdefault((job["compute"], job["hosts"]), []).append(job)
    return "\n\n".join(
        "\n".join(
            [
                f"{compute.capitalize()} compute, {hosts} hosts: ratio to no exchange "
                "(MB sent per rank and step)",
                "",
                *_table(jobs),
            ]
        )
        for (compute, hosts), jobs in grouped.items()
    )


def _table(jobs: list[dict[str, Any]]) -> Iterator[str]:
    ways = [way for way in WAYS if way != NO_EXCHANGE and any(way in job["ways"] for job in jobs)]
    predicts = any("predicted_step_s" in job["ways"].get(LAGS, {}) for job in jobs)
    columns = ["model", "rate", f"{NO_EXCHANGE}, ms", *ways]
    if predicts:
        columns.append(f"{LAGS}, as predicted")
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for job in jobs:
        base = job["ways"].get(NO_EXCHANGE)
        cells = [
            f"{job['model']}, {job['num_parameters'] / 1e6:.2g} M",
            job["rate"],
            "" if base is None else f"{1e3 * base['step_s']:.0f}",
            *(_cell(job, way) for way in ways),
        ]
        if predicts:
            predicted_s = job["ways"].get(LAGS, {}).get("predicted_step_s")
            known = base is not None and predicted_s is not None
            cells.append(f"{predicted_s / base['step_s']:.2f}" if known else "")
        yield f"| {' | '.join(cells)} |"


def _cell(job: dict[str, Any], way: str) -> str:
    ratio = ratio_of(job, way)
    if ratio is None:
        return ""
    return f"{ratio:.2f} ({job['ways'][way]['bytes_sent'] / 1e6:.2g})"


def draw(results: Mapping[str, dict[str, Any]], compute: str, picture: Path) -> None:
    """Draw the ratio over the rate, a line for each way, a panel for each model and hosts.

    Args:
        results: Jobs by key.
        compute: Of those drawn.
        picture: File to write.

    Raises:
        ValueError: If there is no job with this compute.
    """
    jobs = [job for job in ordered(results) if job["compute"] == compute]
    if not jobs:
        raise ValueError(f"draw: expected some jobs with {compute!r} for 'compute', got none.")
    hosts = sorted({job["hosts"] for job in jobs})
    models = [model for model in MODELS if any(job["model"] == model for job in jobs)]
    rates = sorted({job["rate"] for job in jobs}, key=bits_per_second)
    figure, panels = pyplot.subplots(
        len(hosts),
        len(models),
        figsize=(3.6 * len(models), 0.6 + 2.7 * len(hosts)),
        sharex=True,
        sharey="col",
        squeeze=False,
        constrained_layout=True,
    )
    for row, count in zip(panels, hosts, strict=True):
        for panel, model in zip(row, models, strict=True):
            own = [job for job in jobs if (job["hosts"], job["model"]) == (count, model)]
            _draw_panel(panel, own, rates)
            panel.set_title(f"{model}, {count} hosts", fontsize=10)
        row[0].set_ylabel("step, ratio to no exchange")
    add_legend(figure, list(panels.flat), columns=5)
    figure.suptitle(f"{compute} compute")
    figure.savefig(picture, dpi=110)
    pyplot.close(figure)


def _draw_panel(panel: Any, jobs: list[dict[str, Any]], rates: list[str]) -> None:
    """Draw one model's jobs."""
    ratios: dict[str, dict[str, float]] = {}
    for job in jobs:
        for way in COLOURS:
            ratio = ratio_of(job, way)
            if ratio is not None:
                ratios.setdefault(way, {})[job["rate"]] = ratio
    draw_ratios(panel, rates, ratios, COLOURS)


def main() -> None:
    """Print the tables, and draw the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="what step.py wrote")
    parser.add_argument("--picture", type=Path, help="where to draw it")
    parser.add_argument("--compute", default="emulated", help="of the picture")
    args = parser.parse_args()
    results = json.loads(args.results.read_text())["jobs"]
    print(tables(results))
    if args.picture:
        draw(results, args.compute, args.picture)


if __name__ == "__main__":
    main()
