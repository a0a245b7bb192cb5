"""`python -m horovod_sylvie install-horovod`: build Horovod for the installed torch, once.

The order of steps and what is printed. Standard library only: it runs before anything else is
installed. What is needed is in `horovod_prerequisites`, how it is built in `horovod_recipe`, where
wheels are kept in `horovod_wheel`, how it is tried out in `comm.horovod_build`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from ..comm.horovod_build import INSTALL_COMMAND, verify_horovod
from .horovod_prerequisites import Compiler, find_compiler, find_missing, torch_version
from .horovod_recipe import (
    HOROVOD_VERSION,
    build_environment,
    toolchain_text,
    wheel_facts,
    wheel_key,
)
from .horovod_wheel import WheelStore, build_wheel, default_folder, wheel_command

# What Horovod imports when it runs. setuptools is one of them: horovodrun imports distutils, which
# Python 3.12 dropped and setuptools brings back.
RUNTIME_PACKAGES: Final = ("cloudpickle", "psutil", "pyyaml", "packaging", "cffi", "setuptools")
BUILD_PACKAGES: Final = ("wheel",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "--wheel-dir",
        type=Path,
        metavar="DIR",
        help="where wheels are kept (default: $HVS_WHEEL_DIR or ~/.cache/horovod-sylvie)",
    )
    parser.add_argument(
        "--force", action="store_true", help="build even if a wheel that fits is kept"
    )
    parser.add_argument(
        "--print-only", action="store_true", help="print what would be done, and do nothing"
    )


def run(arguments: argparse.Namespace) -> int:
    """Install a Horovod that works with the installed torch.

    Returns:
        0 when an allreduce has run on the installed Horovod.

    Raises:
        RuntimeError: If something that the build needs is missing, or a step fails.
        ValueError: If the environment excludes what this package needs.
    """
    torch = torch_version()
    missing = find_missing(os.environ, torch)
    compiler = find_compiler(os.environ)
    if missing or compiler is None or torch is None:
        lines = [f"  {each.what}\n      {each.command}" for each in missing]
        msg = "these are missing:\n" + "\n".join(lines)
        raise RuntimeError(msg)
    env = build_environment(os.environ, compiler)
    toolchain = toolchain_text(torch, compiler, os.environ)
    facts = wheel_facts(torch, compiler, env, toolchain)
    key = wheel_key(facts)
    store = WheelStore((arguments.wheel_dir or default_folder()).expanduser().resolve())
    kept = None if arguments.force else store.find(key)
    if arguments.print_only:
        _print_plan(store, key, facts, kept)
        return 0
    started = time.monotonic()
    if kept is not None:
        print(f"installing Horovod {HOROVOD_VERSION} from {kept}", flush=True)
        _install(kept)
        _verify(kept)
    else:
        _build_and_keep(store, key, facts, env, toolchain)
    _print_result(torch, compiler, time.monotonic() - started)
    return 0


def _build_and_keep(
    store: WheelStore, key: str, facts: dict[str, str], env: dict[str, str], toolchain: str
) -> None:
    log = store.folder / f"build-{key}-{os.getpid()}.log"
    print(
        f"building Horovod {HOROVOD_VERSION} for torch {facts['torch']} (minutes; log: {log})",
        flush=True,
    )
    _pip("install", "-q", *BUILD_PACKAGES, *RUNTIME_PACKAGES)
    with tempfile.TemporaryDirectory(prefix="horovod-wheel-") as folder:
        wheel = build_wheel(Path(folder), env, toolchain, log)
        _install(wheel)
        _verify(log)
        # Kept only now that it is known to work: a store never hands out a wheel that does not
        kept = store.keep(key, wheel, facts)
        log.replace(kept.with_name("build.log"))


def _install(wheel: Path) -> None:
    _pip("install", "-q", *RUNTIME_PACKAGES)
    _pip("install", "-q", "--force-reinstall", "--no-deps", str(wheel))


def _verify(source: Path) -> None:
    problem = verify_horovod()
    if problem is not None:
        msg = (
            f"Horovod was installed, but an allreduce on it failed:\n{problem}\n"
            f"It came from {source}. To build it anew: {INSTALL_COMMAND} --force"
        )
        raise RuntimeError(msg)


def _pip(*arguments: str) -> None:
    """Run pip in this interpreter.

    Raises:
        RuntimeError: If pip fails; it has printed why.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    if subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode != 0:
        msg = f"this command failed: {shlex.join(command)}"
        raise RuntimeError(msg)


def _print_plan(store: WheelStore, key: str, facts: dict[str, str], kept: Path | None) -> None:
    print(f"wheel:     {kept or 'none is kept, it would be built'}")
    print(f"kept in:   {store.folder / key}")
    print(f"command:   {shlex.join(wheel_command('FOLDER'))}")
    for name, value in facts.items():
        if name != "toolchain":
            print(f"{name + ':':10} {value}")
    print("toolchain file (CMAKE_TOOLCHAIN_FILE):")
    print(facts["toolchain"].strip())


def _print_result(torch: str, compiler: Compiler, elapsed_s: float) -> None:
    print(
        f"horovod {HOROVOD_VERSION} works with torch {torch} "
        f"({compiler.identity}, {elapsed_s:.0f} s); details: python -m horovod_sylvie check"
    )
