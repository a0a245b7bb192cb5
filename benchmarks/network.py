r"""Step times over links of a known rate: ways of exchange side by side.

    python benchmarks/network.py --json FILE
    python benchmarks/network.py --json FILE --hosts 2,4 --rates 100mbit,1gbit,unlimited \
        --launcher "LAUNCHER --hosts {hosts} {rate_option} --"

A job is a number of hosts, a rate, a model and a compute; in it `network_rank.py` measures all ways
of exchange in turn. Jobs that are in the file already are not run again. Prints the tables of
`network_report.py`.

The launcher is a command that gets the command of a rank behind it. It must start one process per
host with Horovod's environment (HOROVOD_RANK, ...), the first of them where it can write to this
machine's temporary folder; limit what each host sends and receives to the rate; end with another
status than 0 if a rank does; and on SIGTERM end all that it started. {hosts} stands for the number
of hosts, {rate} for the rate ("100mbit", "unlimited"), and {rate_option} for "--rate 100mbit" or
"--rate-unlimited". Without one, horovodrun starts the ranks on this machine, at no limit.

Compute is "real", or "emulated" (see `emulated.py`): hosts that are simulated on one machine share
its cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from network_models import MODELS
from network_rank import COMPUTES, Pace
from network_report import tables
from network_ways import NO_EXCHANGE, WAYS
from tqdm import tqdm

UNLIMITED: Final = "unlimited"
_RANK_PROGRAM: Final = Path(__file__).with_name("network_rank.py")
_HOROVODRUN: Final = f"{Path(sys.executable).with_name('horovodrun')} --gloo -np {{hosts}}"
_END_S: Final = 30.0  # for a launcher to end what it started


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


def launch_command(launcher: str, job: Job) -> list[str]:
    """Return the launcher's command for a job."""
    option = "--rate-unlimited" if job.rate == UNLIMITED else f"--rate {job.rate}"
    return shlex.split(launcher.format(hosts=job.hosts, rate=job.rate, rate_option=option))


def run_job(job: Job, args: argparse.Namespace) -> dict[str, Any]:
    """Run one job.

    Returns:
        Rank 0's report, and the job.

    Raises:
        RuntimeError: It failed, or took longer than --timeout.
    """
    with tempfile.TemporaryDirectory() as name:
        report, output = Path(name) / "report.json", Path(name) / "output.txt"
        command = launch_command(args.launcher, job)
        command += [sys.executable, str(_RANK_PROGRAM), "--report", str(report)]
        command += ["--model", job.model, "--compute", job.compute, "--ways", args.ways]
        command += ["--rounds", str(args.rounds), "--turn-s", str(args.turn_s)]
        with output.open("w") as stream:
            status = run_to_end(command, stream, args.timeout)
        if status != 0 or not report.exists():
            lines = output.read_text(errors="replace").splitlines()[-15:]
            ended = "was stopped: it took too long" if status is None else f"ended with {status}"
            raise RuntimeError("\n".join([f"{job.key}: the launcher {ended}", *lines]))
        figures: dict[str, Any] = json.loads(report.read_text())
    return asdict(job) | {"rounds": args.rounds, "turn_s": args.turn_s} | figures


def run_to_end(command: list[str], stream: Any, timeout_s: float) -> int | None:
    """Run a command, and leave nothing of it behind.

    Args:
        command: Which.
        stream: Open file for its output.
        timeout_s: Then it is stopped.

    Returns:
        Its status; None if it was stopped.
    """
    process = subprocess.Popen(
        command,
        stdout=stream,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
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


def jobs_of(args: argparse.Namespace) -> Iterator[Job]:
    """Yield the jobs that the command line asks for."""
    # What is compared with each other is measured one after the other
    for compute, hosts, model, rate in itertools.product(
        args.compute.split(","),
        args.hosts.split(","),
        args.models.split(","),
        args.rates.split(","),
    ):
        yield Job(int(hosts), rate, model, compute)


def summary_of(figures: dict[str, Any]) -> str:
    """Return a line on one job: each way's time, and its ratio to no exchange."""
    base_s = figures["ways"].get(NO_EXCHANGE, {}).get("step_s")
    texts = [
        f"{way} {1e3 * each['step_s']:.0f} ms"
        + (f" ({each['step_s'] / base_s:.2f})" if base_s else "")
        for way, each in figures["ways"].items()
    ]
    return ", ".join(texts)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--json", type=Path, required=True, help="kept and added to")
    add("--hosts", default="2", metavar="N[,N...]")
    add("--rates", default=UNLIMITED, metavar="RATE[,RATE...]", help="100mbit, 1gbit, unlimited")
    add("--models", default=",".join(MODELS), metavar="NAME[,NAME...]")
    add("--compute", default=",".join(COMPUTES), metavar="NAME[,NAME...]")
    add("--ways", default=",".join(WAYS), metavar="NAME[,NAME...]", help=", ".join(WAYS))
    add("--launcher", default=_HOROVODRUN, help="see above")
    add("--again", action="store_true", help="run jobs that are in the file already too")
    add("--rounds", type=int, default=Pace.num_rounds, help="turns of each way")
    add("--turn-s", type=float, default=Pace.turn_s, help="seconds of a turn")
    add("--timeout", type=float, default=400.0, metavar="S", help="for a job")
    args = parser.parse_args(argv)
    for option, known in (("models", MODELS), ("compute", COMPUTES), ("ways", WAYS)):
        unknown = set(getattr(args, option).split(",")) - set(known)
        if unknown:
            parser.error(f"--{option}: expected some of {', '.join(known)}, got {unknown.pop()!r}")
    if not all(each.isdigit() and int(each) > 1 for each in args.hosts.split(",")):
        parser.error(f"--hosts: expected numbers from 2, with commas, got {args.hosts!r}")
    limited = set(args.rates.split(",")) - {UNLIMITED}
    if limited and "{rate" not in args.launcher:
        parser.error(f"--rates {args.rates}: name a --launcher that limits the rate")
    return args


def main(argv: list[str] | None = None) -> None:
    """Run the jobs that are missing, then print the tables."""
    args = parse_arguments(argv)
    document: dict[str, Any] = {"jobs": {}}
    if args.json.exists():
        document = json.loads(args.json.read_text())
    results = document["jobs"]
    jobs = [job for job in jobs_of(args) if args.again or job.key not in results]
    failures = []
    for job in tqdm(jobs, unit="job"):
        try:
            results[job.key] = run_job(job, args)
        except RuntimeError as error:
            failures.append(job.key)
            tqdm.write(str(error))
            continue
        tqdm.write(f"{job.key}: {summary_of(results[job.key])}")
        args.json.parent.mkdir(parents=True, exist_ok=True)
        partial = args.json.with_suffix(".partial")
        partial.write_text(json.dumps(document, indent=1) + "\n")
        partial.replace(args.json)
    print(tables(results))
    if failures:
        sys.exit(f"failed: {', '.join(failures)}. The same command runs them again.")


if __name__ == "__main__":
    main()
