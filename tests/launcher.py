"""Run a program under horovodrun, with a deadline, and kill whatever is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Job:
    """How a job ended.

    Attributes:
        returncode: Of the command; None if the deadline passed.
        output: What all ranks and the launcher printed.
    """

    returncode: int | None
    output: str


def horovodrun(
    num_ranks: int,
    program: str,
    *args: object,
    options: Sequence[object] = (),
    timeout_s: float = 150,
    **environment: str,
) -> Job:
    """Run `program` (relative to the repository) on local ranks.

    `options` are further ones of horovodrun.
    """
    launcher = Path(sys.executable).with_name("horovodrun")
    command = [launcher, "--gloo", "-np", num_ranks, *options]
    command += [sys.executable, REPOSITORY / program, *args]
    return run_command(command, timeout_s=timeout_s, **environment)


def run_command(command: Sequence[object], *, timeout_s: float, **environment: str) -> Job:
    """Run a command that starts ranks."""
    process = subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"} | environment,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
        return Job(process.returncode, output)
    except subprocess.TimeoutExpired:
        return Job(None, _kill(process))
    finally:
        if process.poll() is None:
            _kill(process)


def _kill(process: subprocess.Popen[str]) -> str:
    """Kill the launcher and the ranks; horovodrun ignores a SIGTERM while a rank hangs."""
    for child in _descendants(process.pid):
        os.kill(child, signal.SIGKILL)
    output, _ = process.communicate()
    return output


def _descendants(pid: int) -> list[int]:
    """Return a process and its descendants; ranks are in process groups of their own."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it ended meanwhile
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for known in found:
        found += children.get(known, [])
    return found
