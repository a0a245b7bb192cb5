"""Runs the programs of this folder for long: `make sanitize`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.object_files import compiler

from .build import ROOT, build


def main() -> int:
    """Build, run all, print a line for each program; 1 if one of them found anything."""
    options = _parser().parse_args()
    if compiler() is None:
        print("sanitize: expected a C++ compiler, found none. Set CXX.")
        return 1
    print(f"sanitize: building in {options.folder}", flush=True)
    commands = _libfuzzer_commands(options) if options.libfuzzer else _commands(options)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = sum(pool.map(_run, commands))
    return 1 if failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.sanitizers", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="of each fuzz target")
    parser.add_argument("--rounds", type=int, default=10, help="of the program with threads")
    parser.add_argument("--seed", type=int, default=1, help="of the inputs")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "sanitizers")
    parser.add_argument(
        "--libfuzzer", action="store_true", help="fuzz by libFuzzer: CXX must name a clang"
    )
    return parser


def _commands(options: argparse.Namespace) -> list[list[str]]:
    fuzzing = build("address", options.folder)
    threads = build("thread", options.folder)["threads"]
    del fuzzing["faults"]
    arguments = ["--inputs", str(options.inputs), "--seed", str(options.seed)]
    return [
        [str(threads), str(options.rounds)],
        *([str(program), *arguments] for program in fuzzing.values()),
    ]


def _libfuzzer_commands(options: argparse.Namespace) -> list[list[str]]:
    """Return commands that leave the input that ends them in the folder."""
    arguments = [f"-runs={options.inputs}", f"-seed={options.seed}", "-max_len=20000"]
    return [
        [str(program), *arguments, f"-artifact_prefix={options.folder}/{name}-"]
        for name, program in build("libfuzzer", options.folder).items()
    ]


def _run(command: list[str]) -> bool:
    """Run a program and print its last line, or all where it fails; returns whether it did."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    name = Path(command[0]).name.partition("-")[0]
    lines = done.stdout.strip().splitlines() or [""]
    print(f"sanitize: {name}: {lines[-1]}", flush=True)
    if done.returncode != 0:
        print(done.stdout, flush=True)
    return done.returncode != 0


if __name__ == "__main__":
    sys.exit(main())
