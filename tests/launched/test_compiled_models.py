"""torch.compile with both halves, under horovodrun."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.launcher import horovodrun

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytestmark = pytest.mark.launcher


@pytest.mark.timeout(420)
def test_compiled_models_train_as_eager_ones(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("needs g++, which torch.compile calls on a CPU")
    job = horovodrun(2, "tests/programs/compiled_models.py", tmp_path, timeout_s=400)
    assert job.returncode == 0, job.output
    assert job.output.count("compiled is as eager") == 2, job.output
