"""A rank that fails while gradients are exchanged: every other rank ends, with a clear message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.launcher import horovodrun

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytestmark = [pytest.mark.launcher, pytest.mark.timeout(120)]

NUM_RANKS = 3


def run(tmp_path: Path, fault: str, *, deadline_s: int = 60) -> tuple[str, dict[int, str]]:
    """Run the faulty training; return what was printed, and what each rank said last."""
    job = horovodrun(
        NUM_RANKS,
        "tests/programs/optimizer_faults.py",
        tmp_path / "alive",
        fault,
        timeout_s=90,
        HVS_TIMEOUT_S=str(deadline_s),
    )
    assert job.returncode is not None, f"hangs: {job.output}"
    assert job.returncode != 0, job.output
    assert "trained to the end" not in job.output, job.output
    said = re.findall(r"rank (\d) says: (.*)", job.output)
    return job.output, {int(rank): text for rank, text in said}


@pytest.mark.parametrize("moment", ["killed in backward", "killed between steps"])
def test_rank_that_is_killed_makes_every_survivor_say_so(tmp_path: Path, moment: str) -> None:
    output, said = run(tmp_path, moment)
    assert "rank 1 ended with -9" in output, output
    assert said.keys() == {0, 2}, output
    for rank, text in said.items():
        # A CommunicationError for this package, a HorovodInternalError for hvd.elastic.run
        assert text.startswith(f"HorovodFailure: rank {rank}: 'sylvie.grad."), text
        assert "Another rank ended" in text, text


def test_rank_that_raises_ends_the_job_with_its_reason(tmp_path: Path) -> None:
    _, said = run(tmp_path, "raises")
    assert said[1] == "ZeroDivisionError: one rank divides by zero"


def test_rank_that_stops_calling_step_is_waited_for_until_the_deadline(tmp_path: Path) -> None:
    _, said = run(tmp_path, "stalls", deadline_s=5)
    assert said.keys() & {0, 2}
    for text in said.values():
        timed_out = r"'sylvie\.grad\..*' was not completed within 5 s\. Pending here: '.*0\.weight'"
        assert re.search(timed_out, text) or "Another rank ended" in text, text
    assert any("was not completed within 5 s" in text for text in said.values())


def test_rank_with_a_nan_gradient_is_named_by_every_rank(tmp_path: Path) -> None:
    output, said = run(tmp_path, "nan")
    # The launcher ends the others as soon as one has ended
    assert said, output
    for rank, text in said.items():
        named = rf"NonFiniteGradientError: rank {rank}: .*'0\.weight' on rank 1 \(960 elements\)"
        assert re.match(named, text) or "Another rank ended" in text, text


def test_rank_with_another_density_is_told_to_every_rank(tmp_path: Path) -> None:
    output, said = run(tmp_path, "density")
    assert said, output
    for rank, text in said.items():
        differ = rf"PeerError: rank {rank}: .*density=0\.1, .*, rank 1 has '.*density=0\.2, "
        assert re.match(differ, text) or "Another rank ended" in text, text


def test_rank_that_calls_the_join_of_horovod_ends_the_job_with_a_reason(tmp_path: Path) -> None:
    output, said = run(tmp_path, "joins")
    texts = [text for rank, text in said.items() if rank != 1]
    # Horovod lets a rank that has joined send zeros, or nothing at all: that is a race inside it
    reasons = ("all zeros, as after hvd.join()", "Another rank ended, or submitted something else")
    assert any(reason in text for text in texts for reason in reasons), output
