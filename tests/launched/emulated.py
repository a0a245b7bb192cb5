"""Jobs on emulated hosts, each with a link of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import Final

import pytest
from emulated_hosts import NAMESPACES, TOOLS

from tests.launcher import REPOSITORY, Job, run_command


def lacks() -> str:
    """Say why this machine cannot emulate hosts; nothing where it can."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{missing[0]} is not installed"
    tried = subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False)
    return tried.stderr.decode().strip() if tried.returncode else ""


LACKS: Final = lacks()
needs_emulated_hosts = pytest.mark.skipif(
    bool(LACKS), reason=f"needs namespaces, which are not to be had here: {LACKS}"
)


def run_on_hosts(
    num_hosts: int,
    program: str,
    *args: object,
    options: tuple[object, ...] = (),
    timeout_s: float = 150,
    **environment: str,
) -> Job:
    """Run `program` (relative to the repository); `options` are further ones of emulated_hosts."""
    command = [sys.executable, REPOSITORY / "benchmarks/emulated_hosts.py", "--hosts", num_hosts]
    command += [*options, "--", sys.executable, REPOSITORY / program, *args]
    return run_command(command, timeout_s=timeout_s, **environment)
