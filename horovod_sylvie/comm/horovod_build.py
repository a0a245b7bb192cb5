"""Which Horovod is installed, what it was built with, and whether it can be used.

`require_horovod` is how this package imports Horovod. `describe_horovod` looks at it from outside,
in a child process, because an extension that was built for another torch can do anything on
import, crashing included. No rank is started here. Nothing in this module needs torch.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

from .errors import CommunicationError

INSTALL_COMMAND: Final = "python -m horovod_sylvie install-horovod"
CHILD_TIMEOUT_S: Final = 120

_MARK: Final = "horovod_sylvie: "
# Prints one marked line, since Horovod prints on import when its extension is missing
_DESCRIBE: Final = """
import json
import horovod.torch as hvd
names = ("gloo", "mpi", "nccl", "ccl", "ddl", "cuda", "rocm")
built = None
if hvd._MPI_LIB_AVAILABLE:
    built = [name for name in names if getattr(hvd, name + "_built")()]
print("horovod_sylvie: " + json.dumps(built))
"""
_ALLREDUCE: Final = """
import torch
import horovod.torch as hvd
hvd.init()
total = hvd.allreduce(torch.ones(2), op=hvd.Sum, name="install_horovod.allreduce")
assert total.tolist() == [hvd.size()] * 2, total
hvd.shutdown()
print("horovod_sylvie: " + torch.__version__)
"""


@dataclass(frozen=True)
class HorovodBuild:
    """What one installed Horovod is. `problem` is None exactly when it can be used.

    Attributes:
        version: Version of the installed distribution; None where there is none.
        torch_version: The torch that it was compiled against; None where that was not recorded,
            which is so when it was built without torch.
        features: Which of "gloo", "mpi", "nccl", "ccl", "ddl", "cuda", "rocm" were compiled in;
            empty where the extension cannot be loaded.
        problem: Why it cannot be used.
    """

    version: str | None
    torch_version: str | None
    features: frozenset[str]
    problem: str | None


def require_horovod() -> ModuleType:
    """Import `horovod.torch`.

    Returns:
        The module, with its native extension loaded.

    Raises:
        ImportError: If Horovod is missing, was built without torch, or was built for another one.
            The message names the command that installs a Horovod that works.
    """
    cure = f"Run: {INSTALL_COMMAND}"
    try:
        module = importlib.import_module("horovod.torch")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "horovod":
            raise
        msg = f"require_horovod: Horovod is not installed. {cure}"
        raise ImportError(msg) from error
    except (ImportError, OSError) as error:
        msg = f"require_horovod: Horovod cannot be loaded with this torch ({error}). {cure} --force"
        raise ImportError(msg) from error
    # Horovod prints a warning and carries on, without init() or allreduce()
    if not getattr(module, "_MPI_LIB_AVAILABLE", False):
        msg = f"require_horovod: Horovod was built without its torch extension. {cure}"
        raise ImportError(msg)
    return module


def has_gpu_operations() -> bool:
    """Return whether Horovod moves GPU tensors without a way round by the host.

    That is NCCL. Horovod does not tell which operations it was built for, nor whether it has an
    MPI that knows GPUs; with that one, staging costs a copy, and is right.
    """
    return bool(require_horovod().nccl_built())


@functools.cache
def horovod_failure() -> type[CommunicationError]:
    """Return the error of an operation that Horovod gave up.

    Returns:
        A `CommunicationError` that is also Horovod's own `HorovodInternalError`, so that
        `hvd.elastic.run` sees it and starts again with the ranks that are left.
    """
    internal = importlib.import_module("horovod.common.exceptions").HorovodInternalError
    return type("HorovodFailure", (CommunicationError, internal), {"__module__": __name__})


def describe_horovod(torch_version: str | None) -> HorovodBuild:
    """Describe the Horovod of this interpreter without importing it here.

    Args:
        torch_version: The installed torch, as `torch.__version__`; None where there is none.

    Note:
        Starts a child process that imports Horovod; takes seconds.
    """
    try:
        version = importlib.metadata.version("horovod")
    except importlib.metadata.PackageNotFoundError:
        return HorovodBuild(None, None, frozenset(), "not installed")
    built_for = _recorded_torch_version()
    if torch_version is None:
        return HorovodBuild(
            version, built_for, frozenset(), "needs torch, which cannot be imported"
        )
    outcome, text = _run_child(_DESCRIBE)
    features = json.loads(outcome) if outcome is not None else None
    if built_for is not None and built_for != torch_version:
        problem: str | None = f"built for torch {built_for}, but torch {torch_version} is installed"
    elif outcome is None:
        problem = f"cannot be imported: {text}"
    elif features is None:
        problem = "built without its torch extension"
    else:
        problem = None
    return HorovodBuild(version, built_for, frozenset(features or ()), problem)


def verify_horovod() -> str | None:
    """Run `hvd.init` and one allreduce on one rank, in a child process.

    Returns:
        None if that worked, else the last lines of what the child printed.
    """
    outcome, text = _run_child(_ALLREDUCE)
    return None if outcome is not None else text


def _recorded_torch_version() -> str | None:
    """Read what Horovod's build wrote down about torch."""
    spec = importlib.util.find_spec("horovod")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        metadata = Path(folder) / "metadata.json"
        if metadata.is_file():
            try:
                recorded = json.loads(metadata.read_text()).get("pytorch")
            except (ValueError, AttributeError):
                return None  # cut short by a build that failed: nothing is recorded
            return str(recorded) if recorded is not None else None
    return None


def _run_child(program: str) -> tuple[str | None, str]:
    """Run a program in this interpreter; return its marked line and the tail of what it printed."""
    # An empty working folder: with -c, a folder named horovod beside us would be imported instead
    with tempfile.TemporaryDirectory() as folder:
        try:
            child = subprocess.run(
                [sys.executable, "-c", program],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=CHILD_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return None, f"no answer within {CHILD_TIMEOUT_S} s"
    marked = [line for line in child.stdout.splitlines() if line.startswith(_MARK)]
    lines = (child.stdout + child.stderr).strip().splitlines()
    tail = "\n".join(lines[-6:]) or "no output"
    if child.returncode != 0:
        return None, f"{tail} (exit status {child.returncode})"
    return (marked[-1][len(_MARK) :] if marked else None), tail
