"""A rank that is killed or stopped in any phase of a run: the others say so, and what was saved
before is whole.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

import horovod_sylvie as hvs
from tests.launcher import REPOSITORY, Job, horovodrun

sys.path.append(str(REPOSITORY / "examples"))

from full_graph_checkpoint import HASHES, file_name, newest_checkpoint, read_hashes, read_state

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytestmark = [pytest.mark.launcher, pytest.mark.timeout(120)]

NUM_RANKS = 2
GRAPH = "synthetic:nodes=300,degree=6,classes=3,features=8,seed=1"
OPTIONS = (
    "--model sage --layers 3 --hidden 32 --epochs 8 --staleness pipelined --warmup 2 "
    "--compression lags --min-elements 64 --checkpoint-every 3"
)


def run(
    tmp_path: Path, moment: str, *more: object, deadline_s: int = 60
) -> tuple[Job, dict[int, str]]:
    """Run the example; return the job and what each rank said last."""
    job = horovodrun(
        NUM_RANKS,
        "tests/programs/failing_example.py",
        moment,
        tmp_path / "alive",
        *OPTIONS.split(),
        *("--checkpoint", tmp_path / "kept", *more),
        timeout_s=90,
        HVS_TIMEOUT_S=str(deadline_s),
    )
    assert job.returncode is not None, f"hangs: {job.output}"
    said = re.findall(r"rank (\d) says: (.*)", job.output)
    return job, {int(rank): text for rank, text in said}


def run_until_killed(tmp_path: Path, moment: str, *more: object, killed: int = 1) -> dict[int, str]:
    """Run the example until a rank is killed; return what the others said last."""
    job, said = run(tmp_path, moment, *more)
    assert job.returncode != 0, job.output
    assert "trained to the end" not in job.output, job.output
    assert f"rank {killed} ended with -9" in job.output, job.output
    assert said.keys() == set(range(NUM_RANKS)) - {killed}, job.output
    for text in said.values():
        assert text.startswith("HorovodFailure: "), text
        assert "Another rank ended" in text, text
        assert "If it says nothing, it was stopped, or the link to it is cut." in text, text
    return said


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    hvs.partition_graph(GRAPH, tmp_path / "parts", NUM_RANKS, method="random")
    return tmp_path / "parts"


def assert_is_whole(directory: Path, *, epochs: int) -> None:
    """Check that the newest checkpoint is the one of an epoch, and can be loaded."""
    folder = newest_checkpoint(directory)
    assert folder is not None
    hashes = read_hashes(folder)
    states = [read_state(folder / name, hashes[name]) for name in map(file_name, range(NUM_RANKS))]
    assert [len(state["history"]["loss"]) for state in states] == [epochs] * NUM_RANKS


def test_killed_while_it_partitions_leaves_the_earlier_partition(tmp_path: Path) -> None:
    kept = tmp_path / "parts" / f"{NUM_RANKS}-parts"
    before = hvs.partition_graph(GRAPH, kept, NUM_RANKS, method="random").digest
    more = ("--data", GRAPH.replace("seed=1", "seed=2"), "--parts-dir", kept.parent)
    said = run_until_killed(tmp_path, "partitioning", *more, killed=0)
    assert all("'together.partitioning.length'" in text for text in said.values()), said
    for rank in range(NUM_RANKS):
        assert hvs.load_partition(kept, rank, NUM_RANKS).digest == before


def test_killed_in_backward_with_both_exchanges_in_flight_leaves_the_checkpoint(
    tmp_path: Path, parts: Path
) -> None:
    said = run_until_killed(tmp_path, "backward", "--data", parts)
    assert all(re.search(r"'sylvie\.(grad|halo)\.", text) for text in said.values()), said
    assert_is_whole(tmp_path / "kept", epochs=3)


def test_killed_while_it_saves_leaves_the_earlier_checkpoint(tmp_path: Path, parts: Path) -> None:
    said = run_until_killed(tmp_path, "checkpoint", "--data", parts)
    assert all("'together.writing a checkpoint.length'" in text for text in said.values()), said
    assert_is_whole(tmp_path / "kept", epochs=3)
    (unfinished,) = (tmp_path / "kept").glob(".epoch-000006.partial")
    assert not (unfinished / HASHES).exists()


def wait_until_gone(process: int) -> None:
    """Wait for a process to end; the launcher leaves its last ones to a helper of its own."""
    while Path("/proc", str(process)).exists():
        time.sleep(0.1)


def test_stopped_rank_is_waited_for_until_the_deadline_and_ends_with_the_job(
    tmp_path: Path, parts: Path
) -> None:
    job, said = run(tmp_path, "stopped", "--data", parts, deadline_s=4)
    assert job.returncode != 0, job.output
    late = r"CommunicationTimeout: .*'sylvie\.(grad|halo)\..*' was not completed within 4 s"
    assert any(re.match(late, text) for text in said.values()), job.output
    (stopped,) = re.findall(r"rank 1 is process (\d+)", job.output)
    wait_until_gone(int(stopped))
    assert_is_whole(tmp_path / "kept", epochs=3)
