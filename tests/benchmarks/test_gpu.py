"""What a machine with a GPU is told to do: here only how it fails, and how it says so."""

from __future__ import annotations

import sys
from pathlib import Path

import gpu
import pytest
import torch
from gpu import ROOT, Outcome, main, outcome_of


def arguments(tmp_path: Path, *more: str) -> list[str]:
    return ["--json", str(tmp_path / "kernels.json"), *more]


def test_machine_without_a_gpu_is_told_so(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("needs a machine without a CUDA device")
    with pytest.raises(SystemExit, match="finds no GPU here"):
        main(arguments(tmp_path))


@pytest.mark.parametrize(("ok", "status"), [(True, False), (None, False), (False, True)])
def test_failed_step_is_the_status_and_others_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ok: bool | None,
    status: bool,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    for step in gpu.STEPS:
        monkeypatch.setitem(gpu.RUN, step, lambda args: Outcome(True, "1 s"))
    monkeypatch.setitem(gpu.RUN, "build", lambda args: Outcome(ok, "why"))
    with pytest.raises(SystemExit) as ended:
        main(arguments(tmp_path))
    assert ended.value.code is status
    lines = capsys.readouterr().out.splitlines()[-4:]
    assert [line.split()[0] for line in lines] == list(gpu.STEPS)
    assert lines[0].split()[1:] == [{True: "passed", None: "skipped", False: "FAILED"}[ok], "why"]


def test_command_that_fails_or_takes_too_long_is_no_pass() -> None:
    python = [sys.executable, "-c"]
    assert outcome_of([*python, "import horovod_sylvie"], 60).ok
    failed = outcome_of([*python, "raise SystemExit(7)"], 60)
    assert (failed.ok, failed.detail[:12]) == (False, "ended with 7")
    stopped = outcome_of([*python, "import time; time.sleep(60)"], 0.2)
    assert (stopped.ok, stopped.detail) == (False, "was stopped after 0 s")


def test_library_without_kernels_for_the_gpu_is_no_pass(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("needs a machine without a CUDA device")
    args = gpu.parse_arguments(arguments(tmp_path))
    assert gpu.check(args) == Outcome(False, "the native library has no kernels for this GPU")


def test_tests_that_it_sanitizes_are_there() -> None:
    sources = [(ROOT / name).read_text() for name in gpu.GPU_TESTS]
    names = [word for source in sources for word in source.split() if word.startswith("test_")]
    for part in gpu.SANITIZED.split(" or "):
        assert any(part in name for name in names)
