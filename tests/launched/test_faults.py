"""A rank that fails: every other rank ends with a clear message, in bounded time."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from horovod_sylvie.partition.partitioner import partition_graph
from tests import reference_training as reference
from tests.launcher import Job, horovodrun

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytestmark = [pytest.mark.launcher, pytest.mark.timeout(120)]

NUM_RANKS = 3


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    partition_graph(reference.make_graph(), tmp_path / "parts", NUM_RANKS)
    return tmp_path / "parts"


def run(
    parts: Path, fault: str, *, num_ranks: int = NUM_RANKS, deadline_s: int = 5
) -> tuple[Job, dict[int, str]]:
    """Run the faulty training; return the job and what each rank said last."""
    job = horovodrun(
        num_ranks,
        "tests/programs/faulty_training.py",
        parts,
        fault,
        timeout_s=90,
        HVS_TIMEOUT_S=str(deadline_s),
    )
    assert job.returncode is not None, f"hangs: {job.output}"
    assert "trained to the end" not in job.output, job.output
    said = re.findall(r"rank (\d) says: (.*)", job.output)
    return job, {int(rank): text for rank, text in said}


def test_rank_that_is_killed_makes_every_survivor_say_so_and_ends_the_job(parts: Path) -> None:
    job, said = run(parts, "killed")
    assert job.returncode != 0
    # No rank's parent ends before all have spoken, so that the launcher cuts nobody short.
    assert "rank 1 ended with -9" in job.output, job.output
    assert said.keys() == {0, 2}, job.output
    for text in said.values():
        assert text.startswith("HorovodFailure: "), text  # a CommunicationError and Horovod's own
        assert "'sylvie.halo.convs." in text, text
        assert "failed" in text, text
        assert "Another rank ended" in text, text


def test_rank_that_raises_ends_the_job_with_its_reason(parts: Path) -> None:
    job, said = run(parts, "raises")
    assert job.returncode != 0
    assert said[1] == "ZeroDivisionError: one rank divides by zero"


def test_rank_that_stalls_is_named_by_the_operation_that_waits(parts: Path) -> None:
    job, said = run(parts, "stalls")
    assert job.returncode != 0
    assert said.keys() & {0, 2}
    for text in said.values():
        timed_out = r"'sylvie\.halo\.convs\.1\.forward' was not completed within 5 s\. Pending"
        assert re.search(timed_out, text) or "Another rank ended" in text, text
    assert any("was not completed within 5 s" in text for text in said.values())


def test_wait_is_interrupted_long_before_its_deadline(parts: Path) -> None:
    job, said = run(parts, "interrupted", deadline_s=300)  # the job itself may take 90
    assert job.returncode != 0
    assert any(text.startswith("KeyboardInterrupt") for text in said.values()), job.output


def test_rank_with_nan_rows_makes_every_rank_name_it(parts: Path) -> None:
    job, said = run(parts, "nan")
    assert job.returncode != 0
    assert said, job.output
    for text in said.values():
        assert "the rows of rank 1 hold Inf, NaN" in text or "Another rank ended" in text, text


@pytest.mark.parametrize(("fault", "what"), [("model", "model"), ("codec", "halo exchange opt")])
def test_ranks_started_differently_say_so(parts: Path, fault: str, what: str) -> None:
    job, said = run(parts, fault)
    assert job.returncode != 0
    assert said, job.output
    for rank, text in said.items():
        assert text.startswith(f"PeerError: rank {rank}: the ranks differ in {what}"), text


def test_partition_directory_missing_on_one_rank_is_told_to_all(parts: Path) -> None:
    shutil.rmtree(parts / "rank-00001")
    job, said = run(parts, "none")
    assert job.returncode != 0
    assert said, job.output
    for rank, text in said.items():
        assert ("rank-00001" in text) and (rank == 1 or "failed on rank 1" in text), text


def test_partition_for_another_number_of_ranks_says_what_to_run(parts: Path) -> None:
    job, said = run(parts, "none", num_ranks=2)
    assert job.returncode != 0
    assert said, job.output
    for text in said.values():
        assert "--parts 2" in text, text
        assert "-np 3" in text, text
