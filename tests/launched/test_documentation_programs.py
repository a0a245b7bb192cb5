"""Programs in the documents that need Horovod run on two ranks, and print what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents import programs_of
from tests.launcher import horovodrun

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytestmark = [pytest.mark.launcher, pytest.mark.timeout(120)]


def run(page: str, program: str, folder: Path) -> str:
    path = folder / program
    path.write_text(programs_of(page)[program])
    job = horovodrun(2, str(path), timeout_s=100)
    assert job.returncode == 0, job.output
    return job.output


def test_quick_start_learns_and_reports(tmp_path: Path) -> None:
    output = run("quickstart.md", "train.py", tmp_path)
    losses = [float(found) for found in re.findall(r"loss (\S+)", output)]
    assert len(losses) == 3
    assert losses[-1] < 0.4 * losses[0]
    assert re.search(r"2\.weight +TopK +262,144 +2,622 +25\.6 KiB", output)
    assert "101 steps; 41.1 KiB sent per step and rank, 2.02 % of the elements" in output


def test_migrated_program_gives_the_same_bits(tmp_path: Path) -> None:
    output = run("migrate.md", "same.py", tmp_path)
    assert output.count("the same to the last bit: True") == 2
