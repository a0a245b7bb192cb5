"""The link of a host is cut while ranks train: all say so in bounded time, and the job ends.

No packet arrives any more and no connection is closed, as behind a cable that was pulled.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from horovod_sylvie.partition.partitioner import partition_graph
from tests import reference_training as reference
from tests.launched.emulated import needs_emulated_hosts, run_on_hosts

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")

NUM_RANKS, DEADLINE_S = 2, 5
pytestmark = [pytest.mark.launcher, pytest.mark.timeout(120), needs_emulated_hosts]


@pytest.mark.parametrize("half", ["gradients", "halo rows"])
def test_ranks_behind_a_link_that_is_cut_name_the_operation_and_end(
    tmp_path: Path, half: str
) -> None:
    program = "tests/programs/optimizer_faults.py"
    if half == "halo rows":
        program = "tests/programs/faulty_training.py"
        partition_graph(reference.make_graph(), tmp_path / "parts", NUM_RANKS)
    job = run_on_hosts(
        NUM_RANKS,
        program,
        tmp_path / "parts",
        "link is cut",
        timeout_s=90,
        HVS_TIMEOUT_S=str(DEADLINE_S),
    )
    assert job.returncode is not None, f"hangs: {job.output}"
    assert job.returncode != 0, job.output
    assert "trained to the end" not in job.output, job.output
    said = re.findall(r"rank \d says: (.*)", job.output)
    assert said, job.output  # the launcher may end a rank before it has spoken
    for text in said:
        assert re.match(r"CommunicationTimeout: .*'sylvie\.(grad|halo)\.", text), text
        assert f"was not completed within {DEADLINE_S} s. Pending here: " in text, text
