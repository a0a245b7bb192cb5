"""Where rank 0 spends a step, or an epoch of full-graph training.

    python benchmarks/profiles.py step
    python benchmarks/profiles.py epoch --compute emulated --hosts 4 --rate 1gbit

Trains as `step.py` and `epoch.py` do, with real or emulated compute, and watches the main thread of
rank 0 by `cProfile`, which sees functions of C++ too. Prints a table in Markdown of the functions
that took most time themselves, without those that they called. What other threads do, such as
selecting beside backward, is not in it. Watching takes time: the mean of a step is said with it and
without.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import epoch
import epoch_model
import epoch_ways
import step_models
import step_ways
from launched_jobs import report_of
from launchers import KEEP_MEMORY, UNLIMITED, choose_launcher, launch_command
from step_rank import COMPUTES

import horovod_sylvie as hvs

_RANK_PROGRAM: Final = Path(__file__).with_name("profiles_rank.py")
_MODELS: Final = {"step": tuple(step_models.MODELS), "epoch": tuple(epoch_model.MODELS)}
_WAYS: Final = {"step": step_ways.WAYS, "epoch": epoch_ways.WAYS}
_DEFAULTS: Final = {"step": ("mlp", step_ways.LAGS), "epoch": ("sage", "one bit pipelined")}


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("what", choices=list(_MODELS))
    add("--model", help="of step.py or epoch.py")
    add("--way", help="of step.py or epoch.py")
    add("--compute", choices=COMPUTES, default="real")
    add("--steps", type=int, default=40, help="that are watched, and as many that are not")
    add("--rows", type=int, default=12, help="of the table")
    add("--hosts", type=int, default=2)
    add("--rate", default=UNLIMITED, help="100mbit, 1gbit, unlimited")
    add("--launcher", help="see launchers.py")
    add("--graph", default=epoch.GRAPH, help="of an epoch: what hvs.partition_graph takes")
    add("--keep-memory", action="store_true", help="as docs/full-graph.md advises")
    add("--timeout", type=float, default=600.0, metavar="S")
    args = parser.parse_args(argv)
    model, way = _DEFAULTS[args.what]
    args.model, args.way = args.model or model, args.way or way
    for option, known in (("model", _MODELS), ("way", _WAYS)):
        if getattr(args, option) not in known[args.what]:
            expected, got = ", ".join(known[args.what]), getattr(args, option)
            parser.error(f"--{option}: expected one of {expected}, got {got!r}")
    for option in ("steps", "rows", "hosts"):
        if getattr(args, option) < 1:
            parser.error(f"--{option}: expected at least 1, got {getattr(args, option)}")
    choose_launcher(parser, args, [args.rate])
    return args


def table(report: Mapping[str, Any], num_rows: int) -> str:
    """Return the functions that took most, in Markdown, and what they leave.

    Args:
        report: Of `profiles_rank.py`.
        num_rows: Functions.
    """
    steps = report["steps"]
    functions = sorted(report["functions"], key=lambda each: each["own_s"], reverse=True)
    whole_s = sum(each["own_s"] for each in functions)
    lines = ["| function | calls | ms | share |", "|---|---|---|---|"]
    for each in functions[:num_rows]:
        own_s, calls = each["own_s"], each["calls"]
        lines.append(
            f"| `{each['name']}` | {calls / steps:.3g} | {1e3 * own_s / steps:.2f} | "
            f"{100 * own_s / whole_s:.1f} % |"
        )
    left_s = sum(each["own_s"] for each in functions[num_rows:])
    lines.append(
        f"| {len(functions[num_rows:])} others | | {1e3 * left_s / steps:.2f} | "
        f"{100 * left_s / whole_s:.1f} % |"
    )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the job, and print the table."""
    args = parse_arguments(argv)
    options = ["--what", args.what, "--model", args.model, "--way", args.way]
    options += ["--compute", args.compute, "--steps", str(args.steps)]
    key = f"{args.what} of {args.model}, {args.way}"
    launch = launch_command(args.launcher, hosts=args.hosts, rate=args.rate)
    launch += KEEP_MEMORY if args.keep_memory else ()
    with tempfile.TemporaryDirectory() as folder:
        if args.what == "epoch":
            parts = Path(folder) / "parts"
            hvs.partition_graph(args.graph, parts, args.hosts)
            options += ["--parts", str(parts)]
        try:
            report = report_of(launch, _RANK_PROGRAM, options, key=key, timeout_s=args.timeout)
        except RuntimeError as error:
            sys.exit(str(error))
    print(
        f"{key}, {args.compute} compute, {args.hosts} hosts, {args.rate}: mean "
        f"{1e3 * report['watched_s']:.1f} ms watched, {1e3 * report['unwatched_s']:.1f} ms not.\n\n"
        f"{table(report, args.rows)}"
    )


if __name__ == "__main__":
    main()
