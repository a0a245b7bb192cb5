"""Staging over real ranks, under horovodrun."""

from __future__ import annotations

import pytest

from tests.launcher import horovodrun

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytestmark = [pytest.mark.launcher, pytest.mark.timeout(120)]


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_staged_operations_pair_by_name_on_real_ranks(num_ranks: int) -> None:
    job = horovodrun(num_ranks, "tests/programs/staged_ranks.py", timeout_s=100)
    assert job.returncode == 0, job.output
    assert job.output.count("staged as well") == num_ranks, job.output
