"""Tables of what `epoch.py` measured.

    python benchmarks/epoch_report.py FILE
    python benchmarks/epoch_report.py FILE --every-way
    python benchmarks/epoch_report.py FILE --picture docs/images/epoch.png

The share of communication is that of an epoch in full precision: what is left of it without any
exchange is the rest.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from epoch_model import MODELS
from epoch_ways import FULL_PRECISION, NO_EXCHANGE, PLAIN, WAYS
from launchers import bits_per_second
from matplotlib import pyplot
from ratio_panel import add_legend, draw_ratios

Job = dict[str, Any]

_COLOURS: Final = MappingProxyType(
    {
        PLAIN: "black",
        FULL_PRECISION: "tab:gray",
        "half precision": "tab:blue",
        "one bit": "tab:orange",
        "one bit pipelined": "tab:red",
        "one bit bounded": "tab:purple",
        "one bit with top-k": "tab:olive",
        "pipelined with top-k": "tab:green",
    }
)


def ordered(results: Mapping[str, Job]) -> list[Job]:
    """Return jobs as tables list them: by compute, graph, model, hosts and rate."""
    return sorted(
        results.values(),
        key=lambda job: (
            job["compute"],
            job["graph"],
            MODELS.index(job["model"]),
            job["layers"],
            job["hidden"],
            job["hosts"],
            bits_per_second(job["rate"]),
        ),
    )


def model_of(job: Job) -> str:
    """Return what a job trains, in words: "sage, 3 layers of 256"."""
    return f"{job['model']}, {job['layers']} layers of {job['hidden']}"


def ratio_of(job: Job, way: str, base: str) -> float | None:
    """Return how many times as long as another way's an epoch takes, or None if unknown."""
    ways = job["ways"]
    if way not in ways or base not in ways:
        return None
    return float(ways[way]["epoch_s"] / ways[base]["epoch_s"])


def communication_share(job: Job) -> float | None:
    """Return the share of a full-precision epoch that is communication, or None if unknown."""
    ratio = ratio_of(job, NO_EXCHANGE, FULL_PRECISION)
    return None if ratio is None else 1 - ratio


def overview(results: Mapping[str, Job]) -> str:
    """Return a table in Markdown for each compute and graph: a line for each job.

    Args:
        results: Jobs by key.
    """
    grouped: dict[tuple[str, str], list[Job]] = {}
    for job in ordered(results):
        grouped.setdefault((job["compute"], job["graph"]), []).append(job)
    return "\n\n".join(
        "\n".join(
            [
                f"{compute.capitalize()} compute, {graph}: ratio to full precision "
                "(MB sent per rank and epoch)",
                "",
                *_overview(jobs),
            ]
        )
        for (compute, graph), jobs in grouped.items()
    )


def _overview(jobs: list[Job]) -> Iterator[str]:
    ways = [
        way
        for way in WAYS
        if way not in {NO_EXCHANGE, FULL_PRECISION} and any(way in job["ways"] for job in jobs)
    ]
    yield from _lines(
        ["model", "hosts", "rate", "full precision, ms", "communication", NO_EXCHANGE, *ways],
        (
            [
                model_of(job),
                str(job["hosts"]),
                job["rate"],
                _cell(job, FULL_PRECISION, "{milliseconds:.0f} ({megabytes:.2g})"),
                _percent(communication_share(job)),
                _cell(job, NO_EXCHANGE, "{to_full}"),
                *(_cell(job, way, "{to_full} ({megabytes:.2g})") for way in ways),
            ]
            for job in jobs
        ),
    )


def every_way(results: Mapping[str, Job]) -> str:
    """Return a table in Markdown for each job: a line for each way.

    Args:
        results: Jobs by key.
    """
    return "\n\n".join("\n".join(_every_way(job)) for job in ordered(results))


def _every_way(job: Job) -> Iterator[str]:
    yield (
        f"{model_of(job)}, {job['hosts']} hosts, {job['rate']}, {job['compute']} compute, "
        f"{job['graph']}; communication of an epoch in full precision: "
        f"{_percent(communication_share(job)) or 'unknown'}"
    )
    yield ""
    yield from _lines(
        [
            "way",
            "epoch, ms",
            "to full precision",
            "to no exchange",
            "MB sent per rank and epoch",
            "exchanges with rows of the epoch before",
        ],
        (
            [
                way,
                _cell(job, way, "{milliseconds:.0f}"),
                _cell(job, way, "{to_full}"),
                _cell(job, way, "{to_none}"),
                _cell(job, way, "{megabytes:.3g}"),
                _percent(job["ways"][way]["stale_share"]),
            ]
            for way in WAYS
            if way in job["ways"]
        ),
    )


def _lines(columns: list[str], rows: Iterator[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _cell(job: Job, way: str, text: str) -> str:
    if way not in job["ways"]:
        return ""
    figures = job["ways"][way]
    return text.format(
        milliseconds=1e3 * figures["epoch_s"],
        megabytes=figures["bytes_sent"] / 1e6,
        to_full=_ratio(job, way, FULL_PRECISION),
        to_none=_ratio(job, way, NO_EXCHANGE),
    )


def _ratio(job: Job, way: str, base: str) -> str:
    ratio = ratio_of(job, way, base)
    return "" if ratio is None else f"{ratio:.2f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


def draw(results: Mapping[str, Job], picture: Path) -> None:
    """Draw the ratio to no exchange over the rate, a line for each way, a panel for each hosts.

    Args:
        results: Jobs by key, of one model, graph and compute.
        picture: File to write.
    """
    jobs = ordered(results)
    hosts = sorted({job["hosts"] for job in jobs if _num_rates(jobs, job["hosts"]) > 1})
    figure, panels = pyplot.subplots(
        1, len(hosts), figsize=(7.0 * len(hosts), 4.6), squeeze=False, constrained_layout=True
    )
    for panel, count in zip(panels.flat, hosts, strict=True):
        own = [job for job in jobs if job["hosts"] == count]
        ratios: dict[str, dict[str, float]] = {}
        for job in own:
            for way in _COLOURS:
                ratio = ratio_of(job, way, NO_EXCHANGE)
                if ratio is not None:
                    ratios.setdefault(way, {})[job["rate"]] = ratio
        draw_ratios(panel, [job["rate"] for job in own], ratios, _COLOURS)
        panel.set_title(f"{model_of(own[0])}, {count} hosts, {own[0]['compute']} compute")
        panel.set_ylabel("epoch, ratio to no exchange")
    add_legend(figure, list(panels.flat), columns=3)
    figure.savefig(picture, dpi=110)
    pyplot.close(figure)


def _num_rates(jobs: list[Job], hosts: int) -> int:
    return sum(job["hosts"] == hosts for job in jobs)


def main() -> None:
    """Print the tables, and draw the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="what epoch.py wrote")
    parser.add_argument("--every-way", action="store_true", help="a table for each job")
    parser.add_argument("--picture", type=Path, help="where to draw it")
    args = parser.parse_args()
    results = json.loads(args.results.read_text())["jobs"]
    if args.picture:
        draw(results, args.picture)
    print(every_way(results) if args.every_way else overview(results))


if __name__ == "__main__":
    main()
