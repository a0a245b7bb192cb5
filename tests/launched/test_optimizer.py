"""The optimizer's identities, and what it promises to programs for Horovod, on real ranks."""

from __future__ import annotations

import pytest

from tests.launcher import horovodrun

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytestmark = [pytest.mark.launcher, pytest.mark.timeout(240)]


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
def test_optimizer_keeps_its_promises_on_every_rank(num_ranks: int) -> None:
    job = horovodrun(
        num_ranks, "tests/programs/optimizer_checks.py", timeout_s=200, HVS_TIMEOUT_S="60"
    )
    assert job.returncode == 0, job.output
    assert job.output.count("all 37 passed") == num_ranks, job.output
