"""Jobs of a benchmark that a launcher runs: rank programs behind links of a chosen rate."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from launchers import UNLIMITED, choose_launcher
from tqdm import tqdm

_END_S: Final = 30.0  # for a launcher to end what it started


class Job(Protocol):
    """What is measured in one run of the launcher."""

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        ...


AnyJob = TypeVar("AnyJob", bound=Job)


def add_arguments(parser: ArgumentParser, *, num_rounds: int, turn_s: float) -> None:
    """Add what every benchmark is told whose ways take timed turns.

    Args:
        parser: Of the command line.
        num_rounds: The default of --rounds.
        turn_s: The default of --turn-s.
    """
    add_job_arguments(parser, timeout_s=400.0)
    parser.add_argument("--rounds", type=int, default=num_rounds, help="turns of each way")
    parser.add_argument("--turn-s", type=float, default=turn_s, help="seconds of a turn")


def add_job_arguments(parser: ArgumentParser, *, timeout_s: float) -> None:
    """Add what every benchmark is told that runs jobs by a launcher.

    Args:
        parser: Of the command line.
        timeout_s: The default of --timeout.
    """
    add = parser.add_argument
    add("--json", type=Path, required=True, help="kept and added to")
    add("--hosts", default="2", metavar="N[,N...]")
    add("--rates", default=UNLIMITED, metavar="RATE[,RATE...]", help="100mbit, 1gbit, unlimited")
    add("--launcher", help="see launchers.py; by default hosts are emulated")
    add("--again", action="store_true", help="run jobs that are in the file already too")
    add("--timeout", type=float, default=timeout_s, metavar="S", help="for a job")


def add_names(parser: ArgumentParser, option: str, names: Iterable[str], default: str = "") -> None:
    """Add an option that takes a list of names, and refuses others.

    Args:
        parser: Of the command line.
        option: Such as "--ways".
        names: All that there are.
        default: Names, with commas; all of them where there are none.
    """
    names = tuple(names)
    expected = ", ".join(names)

    def known(text: str) -> str:
        unknown = set(text.split(",")) - set(names)
        if unknown:
            raise ArgumentTypeError(f"expected some of {expected}, got {unknown.pop()!r}")
        return text

    parser.add_argument(
        option,
        type=known,
        default=default or ",".join(names),
        metavar="NAME[,NAME...]",
        help=expected.replace("%", "%%"),  # a help text is a format
    )


def check_arguments(parser: ArgumentParser, args: Namespace) -> None:
    """End with a message where hosts or rates cannot be; choose a launcher if none is named.

    Args:
        parser: That read the arguments.
        args: Which.
    """
    if not all(each.isdigit() and int(each) > 1 for each in args.hosts.split(",")):
        parser.error(f"--hosts: expected numbers from 2, with commas, got {args.hosts!r}")
    choose_launcher(parser, args, args.rates.split(","))


def combinations_of(args: Namespace) -> Iterator[tuple[str, int, str, str]]:
    """Yield compute, hosts, model and rate of each job that the command line asks for.

    What is compared with each other is measured one after the other: the rates of one model.
    """
    lists = (args.compute, args.hosts, args.models, args.rates)
    for compute, hosts, model, rate in itertools.product(*(each.split(",") for each in lists)):
        yield compute, int(hosts), model, rate


def summary_of_ways(figures: Mapping[str, Any], *, base: str, seconds: str) -> str:
    """Return a line on one job: each way's time, and its ratio to another way's.

    Args:
        figures: Of the job, with "ways".
        base: The other way; without it there are no ratios.
        seconds: Which figure of a way is its time.
    """
    base_s = figures["ways"].get(base, {}).get(seconds)
    texts = [
        f"{way} {1e3 * each[seconds]:.0f} ms"
        + (f" ({each[seconds] / base_s:.2f})" if base_s else "")
        for way, each in figures["ways"].items()
    ]
    return ", ".join(texts)


def report_of(
    launch: Sequence[str], program: Path, options: Sequence[str], *, key: str, timeout_s: float
) -> dict[str, Any]:
    """Run a rank program on every host.

    Args:
        launch: The launcher's command, as from `launchers.launch_command`.
        program: What each host runs; it is told --report, a file for rank 0 to write.
        options: Its other arguments.
        key: Name of the job, for messages.
        timeout_s: Then it is stopped.

    Returns:
        Rank 0's report.

    Raises:
        RuntimeError: It failed, or took too long; the text has the end of its output.
    """
    with tempfile.TemporaryDirectory() as name:
        report, output = Path(name) / "report.json", Path(name) / "output.txt"
        command = [*launch, sys.executable, str(program), "--report", str(report), *options]
        run_or_raise(command, output, f"{key}: the launcher", timeout_s, expected=report)
        figures: dict[str, Any] = json.loads(report.read_text())
    return figures


def run_or_raise(
    command: Sequence[str],
    output: Path,
    what: str,
    timeout_s: float,
    *,
    expected: Path | None = None,
) -> None:
    """Run a command, and leave nothing of it behind but what it printed.

    Args:
        command: Which.
        output: File for its output.
        what: What runs, for the message.
        timeout_s: Then it is stopped.
        expected: A file that it must have written.

    Raises:
        RuntimeError: It failed, or took too long; the text has the end of its output.
    """
    with output.open("w") as stream:
        status = run_to_end(command, stream, timeout_s)
    if status != 0 or not (expected is None or expected.exists()):
        lines = output.read_text(errors="replace").splitlines()[-15:]
        ended = "was stopped: it took too long" if status is None else f"ended with {status}"
        raise RuntimeError("\n".join([f"{what} {ended}", *lines]))


def run_to_end(
    command: Sequence[str],
    stream: Any,
    timeout_s: float,
    *,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> int | None:
    """Run a command, and leave nothing of it behind.

    Args:
        command: Which.
        stream: Open file for its output; None for this program's.
        timeout_s: Then it is stopped.
        folder: Where it runs; None for here.
        variables: Further ones of its environment.

    Returns:
        Its status; None if it was stopped.
    """
    process = subprocess.Popen(
        command,
        stdout=stream,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | dict(variables or {}),
    )
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def measure(
    jobs: Iterable[AnyJob],
    run: Callable[[AnyJob], dict[str, Any]],
    file: Path,
    *,
    again: bool,
    summary_of: Callable[[dict[str, Any]], str],
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Run the jobs that are missing in a file, and keep each result there as it comes.

    Args:
        jobs: Which.
        run: Runs one, and returns its figures; a `RuntimeError` is a failure of that job only.
        file: Kept and added to.
        again: Run the others too.
        summary_of: Says a line on the figures of one job.

    Returns:
        All figures in the file, by key, and the keys of the jobs that failed.
    """
    document = kept_in(file)
    results: dict[str, dict[str, Any]] = document["jobs"]
    failures = []
    for job in tqdm([job for job in jobs if again or job.key not in results], unit="job"):
        try:
            results[job.key] = run(job)
        except RuntimeError as error:
            failures.append(job.key)
            tqdm.write(str(error))
            continue
        tqdm.write(f"{job.key}: {summary_of(results[job.key])}")
        keep(document, file)
    return results, failures


def kept_in(file: Path) -> dict[str, Any]:
    """Return a file of results; one without jobs, if there is none."""
    document: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"jobs": {}}
    return document


def keep(document: Mapping[str, Any], file: Path) -> None:
    """Write a file of results, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=1) + "\n")
    partial.replace(file)


def end(failures: Sequence[str]) -> None:
    """Exit with a message if some jobs failed."""
    if failures:
        sys.exit(f"failed: {', '.join(failures)}. The same command runs them again.")
