"""The store of Horovod wheels, and the build that fills it.

A wheel lies in `<store>/<key>/` with `facts.json`, which says what the key was made of, and the log
of its build. It is put there under its final name in one step, so that of two builds at a time both
succeed and neither sees half a file. What a build does is decided in `horovod_recipe`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .horovod_recipe import HOROVOD_VERSION

# Symptom in the build's log (a regular expression) -> its likely cause and the cure. The first
# that is found is shown, so the causes come before what follows from them.
_SYMPTOMS: Final = (
    (
        r"No space left on device",
        "The disk is full: free about 1 GB, or point TMPDIR at another disk.",
    ),
    (
        r"Killed signal terminated|internal compiler error|cannot allocate memory|"
        r"virtual memory exhausted",
        "The compiler ran out of memory: run again with MAKEFLAGS=-j1.",
    ),
    (
        r"Compatibility with CMake < 3\.5|C\+\+17 or later compatible compiler|"
        r"C\+\+20 or later compatible compiler",
        "CMake did not read our toolchain file: it must be 3.21 or newer (cmake --version; "
        "HOROVOD_CMAKE names another one).",
    ),
    (
        r"unrecognized command.line option .-std=c\+\+|invalid value 'c\+\+20'",
        "The compiler is too old for this torch: install g++ 10 or newer, or set CXX.",
    ),
    (
        r"Python\.h: No such file",
        "The headers of Python are missing: apt-get install -y python3-dev",
    ),
    (
        r"Could NOT find NCCL|nccl\.h: No such file",
        "NCCL was asked for and not found: set HOROVOD_NCCL_HOME, or unset HOROVOD_GPU_OPERATIONS.",
    ),
    (
        r"Could NOT find MPI|mpi\.h: No such file",
        "MPI was asked for and not found: apt-get install -y libopenmpi-dev openmpi-bin, or unset "
        "HOROVOD_WITH_MPI.",
    ),
    (
        r"Could NOT find CUDA|CUDA_HOME environment variable is not set|cuda_runtime\.h: No such",
        "The CUDA toolkit was asked for, or torch is built for CUDA and an nvcc is on PATH, and it "
        "was not found: set CUDA_HOME and HOROVOD_CUDA_HOME to its folder, which holds "
        "bin/nvcc and include/cuda_runtime.h.",
    ),
    (
        r"this PyTorch installation does not support CUDA",
        "The installed torch is for CPUs: install one for CUDA, or unset HOROVOD_GPU_OPERATIONS.",
    ),
    (
        r"No module named 'torch'",
        "The build did not see torch: it must run in the interpreter that has it.",
    ),
    (
        r"No module named '(distutils|packaging|setuptools|wheel)'",
        "Packages that the build needs are missing: pip install setuptools wheel packaging",
    ),
    (
        r"No matching distribution found|Connection refused|Temporary failure in name resolution|"
        r"Max retries exceeded",
        "pip could not download Horovod's source release: check the network and pip's index.",
    ),
)


class WheelStore:
    """A folder of wheels by key. Never holds a file that is half written.

    Attributes:
        folder: Where the wheels lie; made when first needed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, key: str) -> Path | None:
        """Return the wheel kept under `key`, or None."""
        return next(iter(sorted((self.folder / key).glob("horovod-*.whl"))), None)

    def keep(self, key: str, wheel: Path, facts: Mapping[str, str]) -> Path:
        """Copy a wheel and its facts into the store, replacing what is there in one step.

        Returns:
            The path of the kept wheel.
        """
        folder = self.folder / key
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".writing-") as temporary:
            description = Path(temporary) / "facts.json"
            description.write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")
            copied = Path(shutil.copy(wheel, temporary))
            description.replace(folder / "facts.json")
            return copied.replace(folder / wheel.name)


def wheel_command(folder: Path | str) -> list[str]:
    """Return the pip command that builds the wheel into `folder`."""
    # --no-build-isolation: the build must see torch. --no-cache-dir: pip's own cache knows nothing
    # of torch's version and would hand out a wheel built for another. --no-binary: no index has a
    # wheel that fits. --no-deps: what Horovod needs is installed by name.
    return [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-v",
        "--no-build-isolation",
        "--no-cache-dir",
        "--no-deps",
        "--no-binary",
        "horovod",
        "-w",
        str(folder),
        f"horovod=={HOROVOD_VERSION}",
    ]


def build_wheel(folder: Path, env: Mapping[str, str], toolchain: str, log: Path) -> Path:
    """Build Horovod's wheel.

    Args:
        folder: An empty folder for the wheel and the toolchain file.
        env: The environment of the build, from `horovod_recipe.build_environment`.
        toolchain: The toolchain file, from `horovod_recipe.toolchain_text`.
        log: Where the whole output of the build goes.

    Returns:
        The path of the wheel, in `folder`.

    Raises:
        RuntimeError: If the build fails; says the likely cause and the last lines of the log.
    """
    toolchain_file = folder / "toolchain.cmake"
    toolchain_file.write_text(toolchain)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        outcome = subprocess.run(
            wheel_command(folder),
            env={**env, "CMAKE_TOOLCHAIN_FILE": str(toolchain_file)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    wheel = next(iter(folder.glob("horovod-*.whl")), None)
    if outcome.returncode != 0 or wheel is None:
        raise RuntimeError(explain_failure(log))
    return wheel


def explain_failure(log: Path, num_lines: int = 25) -> str:
    """Say why a build failed: the last lines of its log and, if recognised, the likely cause."""
    text = log.read_text(errors="replace")
    tail = "\n".join("    " + line for line in text.rstrip().splitlines()[-num_lines:])
    found = (cure for symptom, cure in _SYMPTOMS if re.search(symptom, text, re.IGNORECASE))
    cause = next(found, "The cause is not a known one; the first error in the log tells most.")
    return f"the build of Horovod failed.\n{tail}\nWhole log: {log}\nLikely cause: {cause}"


def default_folder() -> Path:
    """Return the store's folder: $HVS_WHEEL_DIR, or ~/.cache/horovod-sylvie."""
    return Path(os.environ.get("HVS_WHEEL_DIR") or "~/.cache/horovod-sylvie").expanduser()
