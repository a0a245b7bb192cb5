"""`install-horovod` from end to end, on an interpreter whose pip only pretends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from horovod_sylvie.__main__ import main
from horovod_sylvie.commands import install_horovod
from horovod_sylvie.commands.horovod_prerequisites import Compiler, Missing

from .conftest import FakeTool

# A Python that logs its arguments, "builds" a wheel, and answers the two questions asked of it
PYTHON = """
printf '%s\\n' "$*" | head -n 1 >> "{log}"
case "$*" in
  *" pip wheel "*)
    if [ "$FAKE" = "build-fails" ]; then echo "Killed signal terminated program"; exit 1; fi
    while [ "$1" != "-w" ]; do shift; done
    echo wheel > "$2/horovod-0.28.1-py3-none-any.whl" ;;
  *"--version"*) echo "pip 1.0" ;;
  *hvd.allreduce*)
    if [ "$FAKE" = "allreduce-fails" ]; then echo "undefined symbol"; exit 1; fi
    echo "horovod_sylvie: 2.13.0" ;;
  *"print(torch.__version__)"*) echo "2.13.0" ;;
esac
"""


class Machine:
    """The pretended machine: its store and what its Python was asked to do."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "python.log"
        self.store = folder / "store"

    def install(self, *options: str) -> int:
        return main(["install-horovod", "--wheel-dir", str(self.store), *options])

    def wheels(self) -> list[Path]:
        return sorted(self.store.glob("*/horovod-*.whl"))

    def num_builds(self) -> int:
        return self.log.read_text().count(" wheel -v")


@pytest.fixture
def machine(fake_tool: FakeTool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    python = fake_tool("python", PYTHON.format(log=machine.log))
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(install_horovod, "find_missing", lambda environ, torch: [])
    compiler = Compiler("/usr/bin/g++", "g++", 12)
    monkeypatch.setattr(install_horovod, "find_compiler", lambda environ: compiler)
    return machine


def test_install_first_time_builds_verifies_and_keeps(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert machine.install() == 0
    assert machine.num_builds() == 1
    (wheel,) = machine.wheels()
    assert wheel.with_name("facts.json").is_file()
    assert wheel.with_name("build.log").is_file()
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last.startswith("horovod 0.28.1 works with torch 2.13.0 (g++-12, ")


def test_install_second_time_takes_the_kept_wheel(machine: Machine) -> None:
    machine.install()
    assert machine.install() == 0
    assert machine.num_builds() == 1
    assert f"--force-reinstall --no-deps {machine.wheels()[0]}" in machine.log.read_text()


def test_install_with_force_builds_again(machine: Machine) -> None:
    machine.install()
    assert machine.install("--force") == 0
    assert machine.num_builds() == 2
    assert len(machine.wheels()) == 1


def test_install_with_other_wishes_builds_another_wheel(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install()
    monkeypatch.setenv("HOROVOD_WITH_MPI", "1")
    assert machine.install() == 0
    assert len(machine.wheels()) == 2


def test_install_brings_what_horovodrun_imports(machine: Machine) -> None:
    machine.install()
    assert "install -q cloudpickle psutil pyyaml packaging cffi setuptools" in (
        machine.log.read_text()
    )


def test_install_whose_build_fails_keeps_nothing_and_says_why(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE", "build-fails")
    assert machine.install() == 1
    assert machine.wheels() == []
    assert len(list(machine.store.glob("build-*.log"))) == 1
    assert "MAKEFLAGS=-j1" in capsys.readouterr().err


def test_install_whose_allreduce_fails_keeps_nothing_and_says_why(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE", "allreduce-fails")
    assert machine.install() == 1
    assert machine.wheels() == []
    error = capsys.readouterr().err
    assert "undefined symbol" in error
    assert "install-horovod --force" in error


def test_install_with_print_only_changes_nothing(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert machine.install("--print-only") == 0
    assert machine.num_builds() == 0
    assert not machine.store.exists()
    text = capsys.readouterr().out
    assert "CMAKE_POLICY_VERSION_MINIMUM" in text
    assert "horovod==0.28.1" in text


def test_install_on_a_bare_machine_lists_every_missing_thing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = [Missing("make", "apt-get install -y make"), Missing("torch", "pip install torch")]
    monkeypatch.setattr(install_horovod, "find_missing", lambda environ, torch: missing)
    assert machine.install() == 1
    error = capsys.readouterr().err
    assert "apt-get install -y make" in error
    assert "pip install torch" in error


def test_install_without_torch_extension_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOROVOD_WITHOUT_PYTORCH", "1")
    assert machine.install() == 1
    assert "unset HOROVOD_WITHOUT_PYTORCH" in capsys.readouterr().err
