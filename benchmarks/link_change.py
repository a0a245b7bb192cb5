"""A link that changes in mid-run: how soon plans of `Compression.lags` follow, and what it costs.

    python benchmarks/link_change.py --json FILE --hosts 2 --rate 1gbit --to 100mbit

By default hosts are emulated (`emulated_hosts.py`). Other hosts need a launcher (`launchers.py`)
and a --change: a command that makes the links of all of them as fast as --to says, while the job
runs. Rank 0 runs it after --change-at steps, so it must be found, and be allowed to, there.

A perceptron is trained, with real compute. Prints the steps before the change, between it and the
first plan that followed it, and from then on; and draws the time and the loss of every step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from launched_jobs import keep, report_of
from launchers import choose_launcher, launch_command
from link_change_rank import Schedule
from matplotlib import pyplot
from matplotlib.ticker import StrMethodFormatter

_EMULATED_HOSTS: Final = Path(__file__).with_name("emulated_hosts.py")
_RANK_PROGRAM: Final = Path(__file__).with_name("link_change_rank.py")
_SETTLED: Final = 30  # steps after the start that are not judged: plans are being made
_SMOOTHED: Final = 21  # steps of a running median in the picture


def run_job(args: argparse.Namespace) -> dict[str, Any]:
    """Train, and return rank 0's report and the job.

    Raises:
        RuntimeError: It failed, or took longer than --timeout.
    """
    schedule = Schedule(num_steps=args.steps, change_at=args.change_at)
    options = ["--data", args.data, "--change", args.change]
    options += ["--schedule", json.dumps(asdict(schedule))]
    launch = launch_command(args.launcher, hosts=args.hosts, rate=args.rate)
    key = f"{args.hosts}|{args.rate}|{args.to}"
    report = report_of(launch, _RANK_PROGRAM, options, key=key, timeout_s=args.timeout)
    job = {"hosts": args.hosts, "rate": args.rate, "to": args.to}
    return job | {"data": args.data.partition(":")[0], "schedule": asdict(schedule)} | report


def followed_at(report: Mapping[str, Any]) -> int | None:
    """Return the first step of the first plan after the change, or None if none came."""
    change_at = report["schedule"]["change_at"]
    # The decision that makes a plan comes with the step before its first one
    return next((p["from_step"] for p in report["plans"] if p["from_step"] > change_at), None)


def phases(report: Mapping[str, Any]) -> list[tuple[str, range]]:
    """Return the names of the run's parts, and their steps."""
    change_at, num_steps = report["schedule"]["change_at"], report["schedule"]["num_steps"]
    at = followed_at(report)
    last = num_steps if at is None else at
    found = [
        (f"{report['rate']}", range(min(_SETTLED, change_at), change_at)),
        (f"{report['to']}, the old plan", range(change_at, last)),
        (f"{report['to']}, new plans", range(last, num_steps)),
    ]
    return [(name, steps) for name, steps in found if steps]


def table(report: Mapping[str, Any]) -> str:
    """Return a table in Markdown of the run's parts."""
    lines = ["| link | steps | step, ms | loss | densities |", "|---|---|---|---|---|"]
    for name, steps in phases(report):
        times = statistics.median(report["steps_s"][number] for number in steps)
        losses = statistics.median(report["losses"][number] for number in steps)
        plan = plan_at(report, steps[-1])
        densities = "" if plan is None else " to ".join(f"{x:.2g}" for x in plan["densities"])
        lines.append(
            f"| {name} | {steps[0]} to {steps[-1]} | {1e3 * times:.0f} | {losses:.3f} "
            f"| {densities} |"
        )
    at = followed_at(report)
    plans = "the same plans" if report["same_plans"] else "DIFFERENT plans"
    followed = (
        "No plan followed the change."
        if at is None
        else f"The first new plan came {at - report['schedule']['change_at']} steps after it."
    )
    return "\n".join([*lines, "", f"{followed} All ranks had {plans} at the same steps."])


def plan_at(report: Mapping[str, Any], step: int) -> dict[str, Any] | None:
    """Return the plan of a step, or None before the first."""
    found: list[dict[str, Any]] = [p for p in report["plans"] if p["from_step"] <= step]
    return found[-1] if found else None


def running_median(values: Sequence[float], width: int) -> list[float]:
    """Return the median of the values around each one."""
    half = width // 2
    return [
        statistics.median(values[max(0, place - half) : place + half + 1])
        for place in range(len(values))
    ]


def plot(report: Mapping[str, Any], file: Path) -> None:
    """Draw the time and the loss of every step.

    Args:
        report: Of the run.
        file: The picture.
    """
    figure, panels = pyplot.subplots(2, 1, figsize=(7, 4.6), sharex=True, layout="constrained")
    for panel, values, label in (
        (panels[0], [1e3 * each for each in report["steps_s"]], "step, ms"),
        (panels[1], report["losses"], "training loss"),
    ):
        steps = range(len(values))
        panel.plot(steps, values, color="tab:green", linewidth=0.5, alpha=0.35)
        panel.plot(steps, running_median(values, _SMOOTHED), color="tab:green")
        panel.set(yscale="log", ylabel=label)
        for axis_formatter in (panel.yaxis.set_major_formatter, panel.yaxis.set_minor_formatter):
            axis_formatter(StrMethodFormatter("{x:g}"))
        panel.axvline(report["schedule"]["change_at"], color="black", linewidth=0.8)
        for plan in report["plans"]:
            panel.axvline(plan["from_step"], color="tab:blue", linewidth=0.7, linestyle=":")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_title(
        f"{report['hosts']} hosts, {report['rate']} until the black line, then {report['to']}; "
        "dotted: a new plan",
        fontsize=9,
    )
    panels[1].set_xlabel("step")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
    pyplot.close(figure)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--json", type=Path, required=True, help="is replaced")
    add("--change", metavar="COMMAND", help="see above")
    add("--launcher", help="see above")
    add("--hosts", type=int, default=2, metavar="N")
    add("--rate", default="1gbit", help="of the launcher; default: 1gbit")
    add("--to", default="100mbit", help="what --change makes of it, for the report")
    add("--data", default="synthetic", help="images, as of examples/dense.py; default: synthetic")
    add("--steps", type=int, default=Schedule.num_steps, metavar="N")
    add("--change-at", type=int, default=Schedule.change_at, metavar="N")
    add("--timeout", type=float, default=900.0, metavar="S")
    add("--picture", type=Path, help="draw the steps to this file")
    args = parser.parse_args(argv)
    if args.hosts < 2 or not 0 < args.change_at < args.steps:
        parser.error("expected --hosts of at least 2, and --change-at between 0 and --steps")
    if (args.launcher is None) != (args.change is None):
        parser.error("expected a --change for a --launcher: it must know its links")
    choose_launcher(parser, args, [args.rate])
    if args.change is None:
        args.change = f"{sys.executable} {_EMULATED_HOSTS} --change {args.to}"
    return args


def main(argv: list[str] | None = None) -> None:
    """Train, print a table, and draw the picture."""
    args = parse_arguments(argv)
    report = run_job(args)
    keep(report, args.json)
    print(table(report))
    if args.picture:
        plot(report, args.picture)


if __name__ == "__main__":
    main()
