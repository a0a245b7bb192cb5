"""Ranks on hosts that horovodrun reaches by a hosts file and ssh."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launched.emulated import needs_emulated_hosts, run_on_hosts

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytestmark = [pytest.mark.launcher, pytest.mark.timeout(240), needs_emulated_hosts]


@pytest.mark.parametrize(
    ("slots", "program", "passed"),
    [(1, "identities.py", "all 10 passed"), (2, "optimizer_checks.py", "all 37 passed")],
)
def test_ranks_on_two_hosts_keep_their_promises(
    tmp_path: Path, slots: int, program: str, passed: str
) -> None:
    job = run_on_hosts(
        2,
        f"tests/programs/{program}",
        tmp_path / "out",
        options=("--slots", slots),
        timeout_s=200,
        HVS_TIMEOUT_S="60",
    )
    assert job.returncode == 0, job.output
    assert job.output.count(passed) == 2 * slots, job.output


def test_link_of_a_host_holds_back_what_is_faster_than_its_rate() -> None:
    job = run_on_hosts(2, "tests/programs/link_rate.py", options=("--rate", "20mbit"), timeout_s=90)
    assert job.returncode == 0, job.output
    assert job.output.count("was held back") == 2, job.output


def test_status_of_a_rank_is_the_status_of_the_job(tmp_path: Path) -> None:
    program = tmp_path / "fails.py"
    program.write_text("raise SystemExit(3)")
    assert run_on_hosts(2, str(program), timeout_s=60).returncode not in (0, None)
