"""Step times over links of a known rate: ways of exchange side by side.

    python benchmarks/step.py --json FILE
    python benchmarks/step.py --json FILE --hosts 2,4 --rates 100mbit,1gbit,unlimited

A job is a number of hosts, a rate, a model and a compute; in it `step_rank.py` measures all ways
of exchange in turn. Jobs that are in the file already are not run again. Prints the tables of
`step_report.py`.

By default hosts behind links of those rates are emulated (`emulated_hosts.py`); a launcher for real
ones may be named (`launchers.py`).

Compute is "real", or "emulated" (see `emulated.py`): hosts that are simulated on one machine share
its cores.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

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
from launchers import launch_command
from step_models import MODELS
from step_rank import COMPUTES, Pace
from step_report import tables
from step_ways import NO_EXCHANGE, WAYS

_RANK_PROGRAM: Final = Path(__file__).with_name("step_rank.py")


@dataclass(frozen=True)
class Job:
    """What is measured in one run of the launcher."""

    hosts: int
    rate: str
    model: str
    compute: str

    @property
    def key(self) -> str:
        """Its name in the file."""
        return f"{self.hosts}|{self.rate}|{self.model}|{self.compute}"


def run_job(job: Job, args: argparse.Namespace) -> dict[str, Any]:
    """Run one job.

    Returns:
        Rank 0's report, and the job.

    Raises:
        RuntimeError: It failed, or took longer than --timeout.
    """
    options = ["--model", job.model, "--compute", job.compute, "--ways", args.ways]
    options += ["--rounds", str(args.rounds), "--turn-s", str(args.turn_s)]
    launch = launch_command(args.launcher, hosts=job.hosts, rate=job.rate)
    report = report_of(launch, _RANK_PROGRAM, options, key=job.key, timeout_s=args.timeout)
    return asdict(job) | {"rounds": args.rounds, "turn_s": args.turn_s} | report


def jobs_of(args: argparse.Namespace) -> Iterator[Job]:
    """Yield the jobs that the command line asks for."""
    for compute, hosts, model, rate in combinations_of(args):
        yield Job(hosts, rate, model, compute)


def summary_of(figures: dict[str, Any]) -> str:
    """Return a line on one job: each way's time, and its ratio to no exchange."""
    return summary_of_ways(figures, base=NO_EXCHANGE, seconds="step_s")


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser, num_rounds=Pace.num_rounds, turn_s=Pace.turn_s)
    add_names(parser, "--models", MODELS)
    add_names(parser, "--compute", COMPUTES)
    add_names(parser, "--ways", WAYS)
    args = parser.parse_args(argv)
    check_arguments(parser, args)
    return args


def main(argv: list[str] | None = None) -> None:
    """Run the jobs that are missing, then print the tables."""
    args = parse_arguments(argv)
    results, failures = measure(
        jobs_of(args),
        lambda job: run_job(job, args),
        args.json,
        again=args.again,
        summary_of=summary_of,
    )
    print(tables(results))
    end(failures)


if __name__ == "__main__":
    main()
