"""What a machine must have before Horovod can be built on it, and how to get what is missing.

Looks, and changes nothing. What is done with the answers is in `install_horovod`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# CMake reads CMAKE_TOOLCHAIN_FILE from the environment from this version on
CMAKE_MINIMUM: Final = (3, 21)


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler. `identity` is its name and major version, for example "g++-12"."""

    path: str
    name: str
    major: int

    @property
    def identity(self) -> str:
        """Name what must match for a kept wheel to be used again."""
        return f"{self.name}-{self.major}"


@dataclass(frozen=True)
class Missing:
    """One thing that is missing and the command that brings it."""

    what: str
    command: str


def search_path(environ: Mapping[str, str]) -> str:
    """Return PATH with this interpreter's folder first, where pip puts cmake."""
    return str(Path(sys.executable).parent) + os.pathsep + environ.get("PATH", os.defpath)


def find_compiler(environ: Mapping[str, str]) -> Compiler | None:
    """Find the C++ compiler: `CXX` if that is set, else g++, c++ or clang++."""
    chosen = environ.get("CXX", "").strip()
    for name in [chosen] if chosen else ["g++", "c++", "clang++"]:
        path = shutil.which(name, path=search_path(environ))
        if path is None:
            continue
        version = re.match(r"(\d+)", _output([path, "-dumpfullversion", "-dumpversion"]))
        if version is not None:
            return Compiler(path, Path(path).name, int(version[1]))
    return None


def torch_version() -> str | None:
    """Ask a child process for `torch.__version__`; None where torch cannot be imported."""
    return _output([sys.executable, "-c", "import torch; print(torch.__version__)"]).strip() or None


def find_missing(environ: Mapping[str, str], torch: str | None) -> list[Missing]:
    """List what is missing to build Horovod.

    Args:
        environ: The environment of the build.
        torch: The installed torch, as found by `torch_version`.

    Returns:
        The missing things in the order in which to install them; empty if all is there.
    """
    missing = []
    if find_compiler(environ) is None:
        chosen = environ.get("CXX", "").strip()
        what = f"a C++ compiler (CXX={chosen} is not one)" if chosen else "a C++ compiler"
        missing.append(Missing(what, "unset CXX" if chosen else "apt-get install -y g++"))
    if shutil.which("make", path=search_path(environ)) is None:
        missing.append(Missing("make", "apt-get install -y make"))
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        what = f"the headers of Python {sys.version_info[0]}.{sys.version_info[1]} (Python.h)"
        missing.append(Missing(what, "apt-get install -y python3-dev"))
    cmake = _missing_cmake(environ)
    if cmake is not None:
        missing.append(cmake)
    if not _output([sys.executable, "-m", "pip", "--version"]):
        missing.append(Missing("pip", f"{sys.executable} -m ensurepip"))
    if torch is None:
        what = "a torch that can be imported (Horovod is compiled against it)"
        missing.append(Missing(what, f"{sys.executable} -m pip install torch"))
    return missing


def _missing_cmake(environ: Mapping[str, str]) -> Missing | None:
    name = environ.get("HOROVOD_CMAKE", "cmake")
    path = shutil.which(name, path=search_path(environ))
    wanted = ".".join(map(str, CMAKE_MINIMUM))
    command = f"{sys.executable} -m pip install 'cmake>={wanted}'"
    if path is None:
        return Missing(f"{name} {wanted} or newer", f"{command}   (or: apt-get install -y cmake)")
    version = re.search(r"version (\d+)\.(\d+)", _output([path, "--version"]))
    if version is None or (int(version[1]), int(version[2])) < CMAKE_MINIMUM:
        found = "one that does not run" if version is None else f"{version[1]}.{version[2]}"
        return Missing(f"cmake {wanted} or newer ({path} is {found})", command)
    return None


def _output(command: list[str]) -> str:
    """Return what a command prints, or "" if it cannot be run or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
