"""Epoch times of full-graph training over links of a known rate: ways of halo exchange.

    python benchmarks/epoch.py --json FILE
    python benchmarks/epoch.py --json FILE --hosts 2,4 --rates 100mbit,1gbit,unlimited

A job is a number of hosts, a rate, a model, a compute and a graph; in it `epoch_rank.py`
measures all ways of exchange in turn. Weight gradients are exchanged as in training. Graphs are
partitioned beforehand, into this machine's temporary folder, where every host must be able to read.
Ranks keep freed memory, as docs/full-graph.md advises. Jobs that are in the file already are not
run again. Prints the tables of `epoch_report.py`.

By default hosts behind links of those rates are emulated (`emulated_hosts.py`); a launcher for real
ones may be named (`launchers.py`).

Compute is "real", or "emulated" (see `emulated_gnn.py`): hosts that are simulated on one machine
share its cores.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from epoch_model import MODELS
from epoch_rank import Size
from epoch_report import every_way, overview
from epoch_ways import FULL_PRECISION, WAYS
from launched_jobs import (
    add_arguments,
    add_names,
    check_arguments,
    combinations_of,
    end,
    measure,
    report_of,
    summary_of_ways,
)
from launchers import KEEP_MEMORY, launch_command
from step_rank import COMPUTES, Pace

import horovod_sylvie as hvs

_RANK_PROGRAM: Final = Path(__file__).with_name("epoch_rank.py")
GRAPH: Final = "synthetic:nodes=20000,degree=15,classes=40,features=128"


@dataclass(frozen=True)
class Job:
    """What is measured in one run of the launcher."""

    hosts: int
    rate: str
    model: str
    compute: str
    graph: str
    hidden: int
    layers: int

    @property
    def key(self) -> str:
        """Its name in the file."""
        model = f"{self.model} {self.layers}x{self.hidden}"
        return f"{self.hosts}|{self.rate}|{model}|{self.compute}|{self.graph}"


def run_job(job: Job, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run one job.

    Args:
        job: Which.
        args: The command line.
        folder: Where partitions are kept.

    Returns:
        Rank 0's report, and the job.

    Raises:
        RuntimeError: It failed, or took longer than --timeout.
    """
    parts = folder / f"{job.hosts}-parts"
    if not hvs.is_partition(parts):
        hvs.partition_graph(job.graph, parts, job.hosts)
    options = ["--parts", str(parts), "--model", job.model, "--compute", job.compute]
    options += ["--hidden", str(job.hidden), "--layers", str(job.layers)]
    options += ["--ways", args.ways, "--rounds", str(args.rounds), "--turn-s", str(args.turn_s)]
    launch = [*launch_command(args.launcher, hosts=job.hosts, rate=job.rate), *KEEP_MEMORY]
    report = report_of(launch, _RANK_PROGRAM, options, key=job.key, timeout_s=args.timeout)
    return asdict(job) | {"rounds": args.rounds, "turn_s": args.turn_s} | report


def jobs_of(args: argparse.Namespace) -> Iterator[Job]:
    """Yield the jobs that the command line asks for."""
    for compute, hosts, model, rate in combinations_of(args):
        yield Job(hosts, rate, model, compute, args.graph, args.hidden, args.layers)


def summary_of(figures: dict[str, Any]) -> str:
    """Return a line on one job: each way's time, and its ratio to full precision."""
    return summary_of_ways(figures, base=FULL_PRECISION, seconds="epoch_s")


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser, num_rounds=Pace.num_rounds, turn_s=2.0)
    add = parser.add_argument
    add_names(parser, "--models", MODELS, "sage")
    add_names(parser, "--compute", COMPUTES)
    add_names(parser, "--ways", WAYS)
    add("--graph", default=GRAPH, help="what hvs.partition_graph takes")
    add("--hidden", type=int, default=Size.hidden, help="units of a hidden layer")
    add("--layers", type=int, default=Size.layers)
    args = parser.parse_args(argv)
    check_arguments(parser, args)
    for option in ("hidden", "layers"):
        if getattr(args, option) < 1:
            parser.error(f"--{option}: expected at least 1, got {getattr(args, option)}")
    return args


def main(argv: list[str] | None = None) -> None:
    """Run the jobs that are missing, then print the tables."""
    args = parse_arguments(argv)
    with tempfile.TemporaryDirectory() as folder:
        results, failures = measure(
            jobs_of(args),
            lambda job: run_job(job, args, Path(folder)),
            args.json,
            again=args.again,
            summary_of=summary_of,
        )
    print(f"{overview(results)}\n\n{every_way(results)}")
    end(failures)


if __name__ == "__main__":
    main()
