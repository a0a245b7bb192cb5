r"""Time to a given loss by way of exchange, behind links of several rates.

    python benchmarks/time_to_loss.py --json FILE --loss 0.2
    python benchmarks/time_to_loss.py --json FILE --loss 0.2 --data mnist:mnist.npz --hosts 4 \
        --rates 100mbit,1gbit --picture FILE.png

By default hosts behind links of those rates are emulated (`emulated_hosts.py`); a launcher for real
ones may be named (`launchers.py`).

A perceptron is trained, with real compute. A way that needs more steps than another one, or whose
steps take longer, shows both in its time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from launched_jobs import (
    add_job_arguments,
    add_names,
    check_arguments,
    end,
    measure,
    report_of,
)
from launchers import bits_per_second, launch_command
from matplotlib import pyplot
from matplotlib.ticker import StrMethodFormatter
from ratio_panel import add_legend
from step_report import COLOURS
from time_to_loss_rank import TRAINING_WAYS, Training

_RANK_PROGRAM: Final = Path(__file__).with_name("time_to_loss_rank.py")


@dataclass(frozen=True)
class Job:
    """What is trained in one run of the launcher.

    Attributes:
        hosts: How many.
        rate: Of their links: "100mbit", "unlimited".
        data: As of examples/dense.py, without the place of a file.
        training: How.
    """

    hosts: int
    rate: str
    data: str
    training: Training

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        return f"{self.hosts}|{self.rate}|{self.data}|{self.training.loss:g}"


def run_job(job: Job, args: argparse.Namespace) -> dict[str, Any]:
    """Train in all ways.

    Args:
        job: What.
        args: The command line.

    Returns:
        Rank 0's report, and the job.

    Raises:
        RuntimeError: It failed, or took longer than --timeout.
    """
    options = ["--data", args.data, "--ways", args.ways]
    options += ["--training", json.dumps(asdict(job.training))]
    launch = launch_command(args.launcher, hosts=job.hosts, rate=job.rate)
    report = report_of(launch, _RANK_PROGRAM, options, key=job.key, timeout_s=args.timeout)
    return asdict(job) | report


def jobs_of(args: argparse.Namespace) -> Iterator[Job]:
    """Yield the jobs that the command line asks for."""
    training = Training(loss=args.loss, max_steps=args.max_steps)
    for hosts in args.hosts.split(","):
        for rate in args.rates.split(","):
            yield Job(int(hosts), rate, args.data.partition(":")[0], training)


def summary_of(figures: Mapping[str, Any]) -> str:
    """Return a line on one job."""
    return ", ".join(f"{way} {cell(each)}" for way, each in figures["ways"].items())


def cell(way: Mapping[str, Any]) -> str:
    """Say when a way reached the loss."""
    if way["time_s"] is None:
        return f"not in {way['seconds'][-1]:.0f} s"
    return f"{way['time_s']:.3g} s ({way['num_steps']})"


def table(results: Mapping[str, dict[str, Any]]) -> str:
    """Return a table in Markdown: seconds to the loss, and in brackets steps.

    Args:
        results: Jobs by key.
    """
    jobs = ordered(results)
    ways = [way for way in TRAINING_WAYS if any(way in job["ways"] for job in jobs)]
    lines = [
        f"| hosts | rate | data | loss | {' | '.join(ways)} |",
        "|---" * (4 + len(ways)) + "|",
    ]
    for job in jobs:
        cells = [cell(job["ways"][way]) if way in job["ways"] else "" for way in ways]
        head = [str(job["hosts"]), job["rate"], job["data"], f"{job['training']['loss']:g}"]
        lines.append(f"| {' | '.join([*head, *cells])} |")
    return "\n".join(lines)


def ordered(results: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return jobs by hosts and rate."""
    return sorted(results.values(), key=lambda job: (job["hosts"], bits_per_second(job["rate"])))


def plot(results: Mapping[str, dict[str, Any]], file: Path) -> None:
    """Draw the loss over the time, a panel for each job.

    Args:
        results: Jobs by key.
        file: The picture.
    """
    jobs = ordered(results)
    figure, panels = pyplot.subplots(
        1, len(jobs), figsize=(4.6 * len(jobs), 3.6), layout="constrained", squeeze=False
    )
    for panel, job in zip(panels[0], jobs, strict=True):
        for way, colour in COLOURS.items():
            if way in job["ways"]:
                figures = job["ways"][way]
                # A logarithmic axis has no 0
                panel.plot(figures["seconds"][1:], figures["losses"][1:], color=colour, label=way)
        panel.axhline(job["training"]["loss"], color="black", linewidth=0.6, linestyle=":")
        panel.set(xscale="log", yscale="log", xlabel="seconds of steps")
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        panel.yaxis.set_minor_formatter(StrMethodFormatter("{x:g}"))
        panel.set_title(f"{job['hosts']} hosts, {job['rate']}, {job['data']}", fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_ylabel("loss on test examples")
    add_legend(figure, panels[0], columns=5)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
    pyplot.close(figure)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add_job_arguments(parser, timeout_s=1800.0)
    add_names(parser, "--ways", TRAINING_WAYS)
    add("--loss", type=float, required=True, help="to be reached on test examples")
    add("--data", default="synthetic", help="images, as of examples/dense.py; default: synthetic")
    add("--max-steps", type=int, default=Training.max_steps, metavar="N", help="of each way")
    add("--picture", type=Path, help="draw the losses over time to this file")
    args = parser.parse_args(argv)
    check_arguments(parser, args)
    if args.loss <= 0 or args.max_steps < 1:
        parser.error("expected --loss above 0 and --max-steps of at least 1")
    return args


def main(argv: list[str] | None = None) -> None:
    """Train, print a table, and draw the picture."""
    args = parse_arguments(argv)
    results, failures = measure(
        jobs_of(args),
        lambda job: run_job(job, args),
        args.json,
        again=args.again,
        summary_of=summary_of,
    )
    print(table(results))
    if args.picture and results:
        plot(results, args.picture)
    end(failures)


if __name__ == "__main__":
    main()
