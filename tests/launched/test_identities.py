"""The identities on real ranks, under horovodrun."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launcher import horovodrun

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytestmark = pytest.mark.launcher


@pytest.mark.timeout(180)
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
def test_identities_hold_on_every_rank(tmp_path: Path, num_ranks: int) -> None:
    job = horovodrun(num_ranks, "tests/programs/identities.py", tmp_path)
    assert job.returncode == 0, job.output
    assert job.output.count("all 10 passed") == num_ranks, job.output
