"""`horovod.run`, by which a program starts ranks itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.launcher import REPOSITORY

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytestmark = pytest.mark.launcher


@pytest.mark.timeout(180)
def test_function_is_trained_by_ranks_that_a_program_starts() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.programs.runner_api"],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "the ranks agree" in ended.stdout
