"""`check` tells what is there and works with anything missing."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import pytest

from horovod_sylvie.comm.horovod_build import HorovodBuild
from horovod_sylvie.commands import check

from .conftest import RunBlocked

CHECK = "from horovod_sylvie.__main__ import main; sys.exit(main(['check', '--json']))"
WORKING = HorovodBuild("0.28.1", "2.0", frozenset({"gloo"}), None)


def findings_with(
    monkeypatch: pytest.MonkeyPatch, build: HorovodBuild
) -> dict[tuple[str, str], check.Finding]:
    monkeypatch.setattr(check, "describe_horovod", lambda torch_version: build)
    return {(each.group, each.name): each for each in check.collect_findings()}


@pytest.mark.parametrize(
    ("packages", "command"),
    [
        (("torch",), "-m pip install torch"),
        (("torch_geometric", "pymetis"), "pip install 'horovod_sylvie[gnn]'"),
    ],
)
def test_check_without_packages_names_their_command_and_fails(
    run_blocked: RunBlocked, packages: tuple[str, ...], command: str
) -> None:
    outcome = run_blocked(CHECK, *packages)
    assert outcome.returncode == 1, outcome.stderr
    report = json.loads(outcome.stdout)
    found: dict[str, dict[str, Any]] = {each["name"]: each for each in report["findings"]}
    assert report["ready"] is False
    for package in packages:
        assert found[package]["present"] is False
        assert found[package]["command"].endswith(command)
        assert "not installed" in found[package]["detail"]


def test_check_without_horovod_names_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = HorovodBuild(None, None, frozenset(), "not installed")
    found = findings_with(monkeypatch, absent)
    version = found["Versions", "horovod"]
    assert not version.present
    assert version.required
    assert version.command == "python -m horovod_sylvie install-horovod"
    assert not found["Horovod", "torch extension"].present


def test_check_horovod_for_another_torch_asks_for_a_new_build(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stale = HorovodBuild("0.28.1", "2.0", frozenset({"gloo"}), "built for torch 2.0, but ...")
    extension = findings_with(monkeypatch, stale)["Horovod", "torch extension"]
    assert not extension.present
    assert extension.required
    assert extension.detail == "built for torch 2.0, but ..."
    assert extension.command == "python -m horovod_sylvie install-horovod --force"


def test_check_missing_options_name_the_variable_of_the_build(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = findings_with(monkeypatch, WORKING)
    mpi = found["Horovod: controllers", "MPI"]
    nccl = found["Horovod: tensor operations", "NCCL"]
    assert not mpi.required
    assert mpi.command == "HOROVOD_WITH_MPI=1 python -m horovod_sylvie install-horovod"
    assert nccl.command == "HOROVOD_GPU_OPERATIONS=NCCL python -m horovod_sylvie install-horovod"
    assert found["Horovod: controllers", "Gloo"].present


def test_check_mpi_only_build_does_not_require_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    found = findings_with(monkeypatch, HorovodBuild("0.28.1", "2.0", frozenset({"mpi"}), None))
    assert not found["Horovod: controllers", "Gloo"].required


def test_check_native_library_missing_is_reported_and_optional(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise ImportError("no _native here")

    monkeypatch.setattr(check, "load_native", fail)
    kernels = findings_with(monkeypatch, WORKING)["Native library", "CPU kernels"]
    assert not kernels.present
    assert not kernels.required
    assert "no _native here" in kernels.detail
    assert kernels.command.startswith("pip install")


@pytest.mark.parametrize(
    ("devices", "problem", "text"),
    [
        ([], "no driver", "built with CUDA 13.0; no device here: no driver"),
        (
            [{"name": "Card", "compute_capability": "9.0"}],
            None,
            "built with CUDA 13.0; Card (9.0)",
        ),
    ],
)
def test_check_cuda_half_says_toolkit_and_devices(
    monkeypatch: pytest.MonkeyPatch,
    devices: list[dict[str, str]],
    problem: str | None,
    text: str,
) -> None:
    runtime = {"toolkit": "13.0", "driver": None, "devices": devices, "problem": problem}
    native = argparse.Namespace(instruction_set=lambda: "avx2", cuda_runtime=lambda: runtime)
    monkeypatch.setattr(check, "load_native", lambda: native)
    found = findings_with(monkeypatch, WORKING)
    assert found["Native library", "CUDA half"].detail == text
    assert found["Native library", "CPU kernels"].detail == "avx2"


def test_check_package_that_raises_on_import_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "pymetis.py").write_text("raise OSError('libmetis.so: cut short')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pymetis", raising=False)
    pymetis = findings_with(monkeypatch, WORKING)["Versions", "pymetis"]
    monkeypatch.delitem(sys.modules, "pymetis", raising=False)
    assert not pymetis.present
    assert "libmetis.so: cut short" in pymetis.detail


def test_check_table_marks_and_exit_status_agree(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = [
        check.Finding("One", "here", True, True, "1.0"),
        check.Finding("One", "gone", False, True, "not installed", "pip install gone"),
        check.Finding("Two", "extra", False, False, "", "pip install extra"),
    ]
    monkeypatch.setattr(check, "collect_findings", lambda: findings)
    assert check.run(argparse.Namespace(json=False)) == 1
    text = capsys.readouterr().out
    assert "[X] here" in text
    assert "[ ] gone" in text
    assert text.index("pip install gone") > text.index("Missing, and needed")
    assert text.index("pip install extra") > text.index("Not there, and optional")
    monkeypatch.setattr(check, "collect_findings", lambda: findings[:1] + findings[2:])
    assert check.run(argparse.Namespace(json=False)) == 0
    assert "Ready for full-graph training." in capsys.readouterr().out
