"""The soak, for some seconds: it ends by itself, with a verdict."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.launched.emulated import needs_emulated_hosts
from tests.launcher import REPOSITORY, Job, run_command

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytest.importorskip("tqdm", reason="needs the extra [examples]")
pytestmark = [pytest.mark.launcher, pytest.mark.timeout(120)]


def soak(*options: object) -> Job:
    command = [sys.executable, REPOSITORY / "benchmarks" / "soak.py", "--steps", 10]
    return run_command([*command, "--max-growth-mib", 200, *options], timeout_s=100)


def test_short_soak_passes_and_keeps_what_it_saw(tmp_path: Path) -> None:
    job = soak("--minutes", 0.05, "--json", tmp_path / "soak.json")
    assert job.returncode == 0, job.output
    assert job.output.endswith("soak: passed\n")
    epochs = json.loads((tmp_path / "soak.json").read_text())
    assert job.output.count("longest step") == len(epochs) + 1
    assert epochs[-1]["s"] >= 3


@needs_emulated_hosts
def test_soak_changes_the_links_while_ranks_train() -> None:
    job = soak("--minutes", 0.3, "--rates", "50mbit,500mbit")
    assert job.returncode == 0, job.output
    assert job.output.endswith("soak: passed\n")
    assert "links at " in job.output, job.output
