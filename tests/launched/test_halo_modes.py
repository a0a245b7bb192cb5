"""Every mode of the halo exchange on real ranks, under horovodrun."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.halo.door_training import MODES
from tests.launcher import horovodrun

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytestmark = pytest.mark.launcher


@pytest.mark.timeout(180)
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
def test_runs_are_equal_and_resumed_ones_too(tmp_path: Path, num_ranks: int) -> None:
    job = horovodrun(num_ranks, "tests/programs/halo_modes.py", tmp_path)
    assert job.returncode == 0, job.output
    assert job.output.count(f"all {len(MODES)} modes passed") == num_ranks, job.output


@pytest.mark.timeout(120)
def test_program_may_end_with_exchanges_open(tmp_path: Path) -> None:
    job = horovodrun(3, "tests/programs/halo_leaves.py", tmp_path, "end", timeout_s=100)
    assert job.returncode == 0, job.output
    for rank in range(3):
        assert f"rank {rank} ends" in job.output


@pytest.mark.timeout(120)
def test_rank_that_raises_in_forward_ends_all_soon(tmp_path: Path) -> None:
    job = horovodrun(3, "tests/programs/halo_leaves.py", tmp_path, "raise", timeout_s=100)
    assert job.returncode not in (0, None), job.output
    assert 'rank 1: KeyError: "a user\'s mistake"' in job.output
    assert "rank 0 ends" not in job.output and "rank 2 ends" not in job.output
