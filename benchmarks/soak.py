"""Train for a long time on ranks that are late at random, and see that nothing wears out.

    python benchmarks/soak.py --minutes 60
    python benchmarks/soak.py --ranks 4 --rates 20mbit,1gbit

Ranks train an MLP with `Compression.lags()` and a small GNN with pipelined one-bit halo rows, step
by step, and sleep at random. After each epoch rank 0 prints a line. The soak fails, with status 1,
if parameters are not the same on all ranks after an epoch, to the last bit; if the memory of a rank
grows, by the line through the second half of its epochs, by more than --max-growth-mib; if a step
takes longer than the deadline of a wait; or if a rank ends before its time, or does not end.

It is a benchmark, not a test, for its length. With a rate, hosts behind links of it are emulated;
with several, rank 0 gives all links another one every few seconds. A launcher for real hosts may be
named (`launchers.py`), which then has its links to itself. Ranks read the graph from this machine's
temporary folder. `tests/launched/test_soak.py` runs it for some seconds.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from launched_jobs import run_to_end
from launchers import UNLIMITED, bits_per_second, launch_command, launcher_for

import horovod_sylvie as hvs

_RANK: Final = Path(__file__).with_name("soak_rank.py")
_GRAPH: Final = "synthetic:nodes=400,degree=8,classes=4,features=16,seed=0"
_STARTING_S: Final = 120.0  # for ranks to start, and to end
_MIB: Final = 2**20


def growth_of(seconds: Sequence[float], num_bytes: Sequence[int]) -> float:
    """Return by how many bytes memory grew over the second half, as the line through it tells.

    Args:
        seconds: When memory was looked at, ascending.
        num_bytes: What it was then.
    """
    first = len(seconds) // 2
    if len(seconds) - first < 2:
        return 0.0
    times, values = seconds[first:], num_bytes[first:]
    slope = statistics.linear_regression(times, values).slope
    return slope * (times[-1] - times[0])


def verdict_of(
    epochs: Sequence[Mapping[str, Any]], *, deadline_s: float, max_growth_mib: float
) -> tuple[str, list[str]]:
    """Judge a run whose ranks came to their end.

    Args:
        epochs: What rank 0 noted of each.
        deadline_s: For a step.
        max_growth_mib: Of a rank's memory over the second half of the epochs.

    Returns:
        A summary, and what is wrong.
    """
    if not epochs:
        return "no epoch", ["no epoch was trained"]
    seconds = [each["s"] for each in epochs]
    memory = zip(*(each["memory_bytes"] for each in epochs), strict=True)
    growths_mib = [growth_of(seconds, each) / _MIB for each in memory]
    longest_s = max(max(each["longest_step_s"]) for each in epochs)
    shown = ", ".join(f"{each:+.2f}" for each in growths_mib)
    summary = (
        f"{len(epochs)} epochs, {sum(each['steps'] for each in epochs)} steps in {seconds[-1]:.0f} "
        f"s; parameters equal on {len(growths_mib)} ranks after each epoch; memory over the second "
        f"half {shown} MiB (at most {max_growth_mib:g}); longest step {longest_s:.2f} s (at most "
        f"{deadline_s:g})"
    )
    problems = [
        f"the memory of rank {rank} grew by {each:.2f} MiB"
        for rank, each in enumerate(growths_mib)
        if each > max_growth_mib
    ]
    if longest_s > deadline_s:
        problems.append(f"a step took {longest_s:.2f} s")
    return summary, problems


def soak(args: Namespace) -> int:
    """Run the ranks, print the verdict, and return the exit status."""
    with tempfile.TemporaryDirectory() as name:
        parts, report = Path(name) / "parts", Path(name) / "report.json"
        hvs.partition_graph(_GRAPH, parts, args.ranks, method="random")
        rates = args.rates.split(",")
        launch = launch_command(args.launcher, hosts=args.ranks, rate=rates[0])
        options = ["--parts", parts, "--report", report, "--minutes", args.minutes]
        options += ["--steps", args.steps, "--deadline-s", args.deadline_s, "--seed", args.seed]
        options += ["--longest-delay-s", args.longest_delay_s]
        options += ["--rates", args.rates] if len(rates) > 1 else []
        command = [*launch, sys.executable, str(_RANK), *map(str, options)]
        timeout_s = 60 * args.minutes + 2 * args.deadline_s + _STARTING_S
        status = run_to_end(command, None, timeout_s)
        text = report.read_text() if report.exists() else ""
    if args.json and text:
        args.json.write_text(text)
    if status != 0 or not text:
        how = "hangs, and was stopped" if status is None else f"ended with {status}"
        print(f"soak: failed: the job {how}")
        return 1
    limits = {"deadline_s": args.deadline_s, "max_growth_mib": args.max_growth_mib}
    summary, problems = verdict_of(json.loads(text), **limits)
    print(f"soak: {summary}")
    print(f"soak: failed: {'; '.join(problems)}" if problems else "soak: passed")
    return 1 if problems else 0


def positive(text: str) -> float:
    """Read a positive number of the command line."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise ArgumentTypeError(f"expected a positive number, got {text}")
    return value


def main() -> int:
    """Read the command line, and soak."""
    parser = ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    add = parser.add_argument
    add("--minutes", type=positive, default=60.0)
    add("--ranks", type=int, default=2, choices=[2, 3, 4])
    add("--steps", type=int, default=50, choices=range(1, 10001), metavar="N", help="of an epoch")
    add("--deadline-s", type=positive, default=60.0, help="of each wait, and for each step")
    add("--longest-delay-s", type=positive, default=0.2, help="of a rank in a step")
    add("--max-growth-mib", type=positive, default=8.0, help="of a rank, over the second half")
    add("--launcher", help="see launchers.py")
    add("--rates", default=UNLIMITED, metavar="RATE[,RATE...]", help="of the links: 100mbit, 1gbit")
    add("--seed", type=int, default=0, help="of delays and data")
    add("--json", type=Path, help="keep what was seen of each epoch here")
    args = parser.parse_args()
    rates = args.rates.split(",")
    if len(rates) > 1 and (args.launcher is not None or UNLIMITED in rates):
        parser.error("--rates: expected one for a --launcher, and no 'unlimited' among several")
    try:
        for rate in rates:
            bits_per_second(rate)
        args.launcher = launcher_for(rates, args.launcher)
    except ValueError as error:
        parser.error(str(error))
    return soak(args)


if __name__ == "__main__":
    sys.exit(main())
