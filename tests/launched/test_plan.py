"""`plan --measure` on real ranks: all measure the link, one plans and prints."""

from __future__ import annotations

import pytest

from tests.launcher import horovodrun

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytestmark = [pytest.mark.launcher, pytest.mark.timeout(120)]


def test_plan_over_the_measured_link_is_printed_once() -> None:
    job = horovodrun(2, "tests/programs/plan_here.py", "--steps", "2", timeout_s=100)
    assert job.returncode == 0, job.output
    assert job.output.count("the plan for 2 ranks, in the order of backward") == 1, job.output


def test_table_of_scale_begins_with_the_measured_link() -> None:
    job = horovodrun(
        2, "tests/programs/plan_here.py", "--steps", "2", "--ranks", "2,16", timeout_s=100
    )
    assert job.returncode == 0, job.output
    assert "    16 " in job.output, job.output


def test_one_rank_is_told_that_there_is_no_link() -> None:
    job = horovodrun(1, "tests/programs/plan_here.py", timeout_s=100)
    assert job.returncode != 0
    assert "expected at least two ranks for --measure, got one" in job.output
