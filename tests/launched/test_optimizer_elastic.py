"""Horovod Elastic: ranks are killed, join and leave, and what they had pending is kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.launcher import Job, horovodrun

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytestmark = [pytest.mark.launcher, pytest.mark.timeout(120)]

PROGRAM = "tests/programs/optimizer_elastic.py"
# Two names of one machine: Elastic does not run on one host alone
TWO_HOSTS = ("--min-np", "1", "-H", "localhost:1,127.0.0.1:1")


def lives_of(job: Job) -> list[str]:
    """Return what the ranks said when they began to train, and began again, and ended."""
    assert job.returncode is not None, f"hangs: {job.output}"
    return re.findall(r"<stdout>:(rank .*)", job.output)


def final_loss(lives: list[str]) -> float:
    match = re.search(r"held-out loss (\S+)", lives[-1])
    assert match is not None, lives
    return float(match[1])


@pytest.mark.parametrize("fault", ["killed", "killed with dgc"])
def test_survivor_of_a_killed_rank_goes_on_with_what_was_pending(
    tmp_path: Path, fault: str
) -> None:
    job = horovodrun(
        2, PROGRAM, fault, tmp_path / "hosts", options=TWO_HOSTS, timeout_s=100, HVS_TIMEOUT_S="30"
    )
    lives = lives_of(job)
    assert job.returncode == 0, job.output
    assert sorted(lives[:2]) == [f"rank {r} of 2: goes on at step 0, as before" for r in (0, 1)]
    # Back at the last commit; the mean is over one rank now, so its share counts half
    assert lives[2] == "rank 0 of 1: goes on at step 12, residuals rescaled from 2 ranks"
    assert lives[3].startswith("rank 0 of 1: ends"), job.output
    assert final_loss(lives) < 1.5  # ln 6 = 1.79 before training


def test_ranks_that_join_and_leave_are_taken_in_and_let_go(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:1\n")
    script = tmp_path / "discover.sh"
    script.write_text(f"#!/bin/sh\ncat {hosts}\n")
    script.chmod(0o755)
    options = ("--min-np", "1", "--max-np", "2", "--network-interfaces", "lo")
    job = horovodrun(
        1,
        PROGRAM,
        "hosts",
        hosts,
        options=(*options, "--host-discovery-script", script),
        timeout_s=100,
        HVS_TIMEOUT_S="30",
    )
    lives = lives_of(job)
    assert lives[0] == "rank 0 of 1: goes on at step 0, as before"
    assert sorted(lives[1:3]) == [
        "rank 0 of 2: goes on at step 14, nothing pending from 1 ranks",
        "rank 1 of 2: goes on at step 14, as before",
    ]
    assert lives[3] == "rank 0 of 1: goes on at step 28, residuals to be rescaled from 2 ranks"
    assert lives[4].startswith("rank 0 of 1: ends"), job.output
    assert final_loss(lives) < 1.5
