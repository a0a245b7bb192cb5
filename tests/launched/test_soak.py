"""The soak, for some seconds: it ends by itself, with a verdict."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.launcher import REPOSITORY, run_command

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytest.importorskip("tqdm", reason="needs the extra [examples]")
pytestmark = [pytest.mark.launcher, pytest.mark.timeout(120)]


def test_short_soak_passes_and_keeps_what_it_saw(tmp_path: Path) -> None:
    command = [sys.executable, REPOSITORY / "benchmarks" / "soak.py", "--minutes", 0.05]
    command += ["--steps", 10, "--max-growth-mib", 200, "--json", tmp_path / "soak.json"]
    job = run_command(command, timeout_s=100)
    assert job.returncode == 0, job.output
    assert job.output.endswith("soak: passed\n")
    epochs = json.loads((tmp_path / "soak.json").read_text())
    assert job.output.count("longest step") == len(epochs) + 1
    assert epochs[-1]["s"] >= 3
