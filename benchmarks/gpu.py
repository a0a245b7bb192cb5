"""Build the kernels for this machine's GPU, check every one, and time it: all that a GPU is for.

    python benchmarks/gpu.py --json benchmarks/results/kernels_cuda.json [--plot FILE.png]

Needs a CUDA build of torch, nvcc, cmake, pybind11 and pytest; no network, and no Horovod. Works on
a checkout. The steps, each of which runs although another failed:

    build      setup.py build_ext, with CUDA and warnings as errors
    check      the tests that need a GPU: every kernel against the CPU's bytes, streams, waiting
    sanitize   the same, fewer, under compute-sanitizer: memcheck, racecheck, initcheck, synccheck
    time       kernels.py --device cuda: every kernel against its twin, a copy, PyTorch's operators

Exits with 1 if a step failed; a step that cannot run here says why, and is no failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from launched_jobs import run_to_end

ROOT: Final = Path(__file__).resolve().parents[1]
GPU_TESTS: Final = ("tests/ops/test_row_kernels_gpu.py", "tests/ops/test_top_k_gpu.py")
# Each tool slows kernels down by some hundred times: the smaller tests of each file
SANITIZED: Final = "wrong_rows or adds_as or restoring or read_as or waits_for_nothing"
TOOLS: Final = ("memcheck", "racecheck", "initcheck", "synccheck")
_KERNELS_RUN: Final = (
    "import sys; from horovod_sylvie.ops.native import load_native; "
    "sys.exit(load_native().cuda_problem(0))"
)
STEPS: Final = ("build", "check", "sanitize", "time")


class Outcome(NamedTuple):
    """How a step ended.

    Attributes:
        ok: Whether it passed; None if it cannot run here.
        detail: What to know about it.
    """

    ok: bool | None
    detail: str


def build(args: argparse.Namespace) -> Outcome:
    """Build the native library in place, with CUDA."""
    if shutil.which("nvcc") is None:
        return Outcome(None, "nvcc is not on PATH; what is built already is used")
    options = f"-DHVS_WITH_CUDA=ON -DHVS_WERROR=ON {os.environ.get('CMAKE_ARGS', '')}"
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    return outcome_of(command, args.timeout, {"CMAKE_ARGS": options})


def check(args: argparse.Namespace) -> Outcome:
    """Run the tests that need a GPU, which would be skipped if no kernel could run on it."""
    finding = outcome_of([sys.executable, "-c", _KERNELS_RUN], args.timeout)
    if not finding.ok:
        return Outcome(False, "the native library has no kernels for this GPU")
    return outcome_of([*pytest_command(), *GPU_TESTS], args.timeout)


def sanitize(args: argparse.Namespace) -> Outcome:
    """Run some of them under every tool of compute-sanitizer."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        return Outcome(None, "compute-sanitizer is not on PATH")
    failures = []
    for tool in TOOLS:
        # torch's allocator would hide what lies behind a tensor
        command = [program, "--tool", tool, "--error-exitcode", "3", *pytest_command()]
        each = outcome_of(
            [*command, "-k", SANITIZED, *GPU_TESTS],
            args.timeout,
            {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        )
        if not each.ok:
            failures.append(f"{tool} {each.detail}")
    return Outcome(not failures, "; ".join(failures) or ", ".join(TOOLS))


def time_kernels(args: argparse.Namespace) -> Outcome:
    """Time every kernel; prints the table."""
    command = [sys.executable, "benchmarks/kernels.py", "--device", "cuda"]
    command += ["--json", str(args.json.resolve())]
    if args.plot:
        command += ["--plot", str(args.plot.resolve())]
    return outcome_of(command, args.timeout)


RUN: Final[dict[str, Callable[[argparse.Namespace], Outcome]]] = dict(
    zip(STEPS, (build, check, sanitize, time_kernels), strict=True)
)


def pytest_command() -> list[str]:
    """Return the start of a command that runs tests."""
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rf"]


def outcome_of(
    command: Sequence[str], timeout_s: float, variables: Mapping[str, str] | None = None
) -> Outcome:
    """Run a command in the checkout, with its output to this program's.

    Args:
        command: Which.
        timeout_s: Then it is stopped.
        variables: Further ones for its environment.
    """
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    variables = {"PYTHONPATH": path, **(variables or {})}
    started_s = time.monotonic()
    status = run_to_end(command, None, timeout_s, folder=ROOT, variables=variables)
    if status is None:
        return Outcome(False, f"was stopped after {timeout_s:.0f} s")
    took = f"{time.monotonic() - started_s:.0f} s"
    return Outcome(status == 0, took if status == 0 else f"ended with {status} after {took}")


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--json", type=Path, required=True, help="where the times are kept")
    add("--plot", type=Path, help="draw them to this file")
    add("--steps", choices=STEPS, nargs="+", default=STEPS)
    add("--timeout", type=float, default=240.0, metavar="S", help="for a command")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the steps, and say how each ended."""
    args = parse_arguments(arguments)
    import torch

    if not torch.cuda.is_available():
        raise SystemExit(f"gpu: torch {torch.__version__} finds no GPU here. Nothing was done.")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    outcomes = {}
    for step in args.steps:
        print(f"\n=== {step}", flush=True)
        outcomes[step] = RUN[step](args)
    print()
    for step, outcome in outcomes.items():
        word = {True: "passed", False: "FAILED", None: "skipped"}[outcome.ok]
        print(f"{step:10}{word:9}{outcome.detail}")
    sys.exit(any(outcome.ok is False for outcome in outcomes.values()))


if __name__ == "__main__":
    main()
