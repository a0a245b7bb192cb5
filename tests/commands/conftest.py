"""Fixtures for the commands: fake tools on PATH, and interpreters that cannot import something."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""

FakeTool = Callable[[str, str], Path]
RunBlocked = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fake_tool(tmp_path: Path) -> FakeTool:
    """Return a function that writes an executable with a shell script as its body."""
    folder = tmp_path / "tools"
    folder.mkdir()

    def write(name: str, script: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def run_blocked() -> RunBlocked:
    """Return a function that runs a program in a Python that lacks some packages."""

    def run(program: str, *blocked: str) -> subprocess.CompletedProcess[str]:
        code = BLOCKER.format(blocked=set(blocked)) + program
        return subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
        )

    return run
