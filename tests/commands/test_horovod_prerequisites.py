"""What is missing is named together with the command that brings it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from horovod_sylvie.commands import horovod_prerequisites
from horovod_sylvie.commands.horovod_prerequisites import (
    Compiler,
    find_compiler,
    find_missing,
    torch_version,
)

from .conftest import FakeTool


@pytest.fixture
def machine(fake_tool: FakeTool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """A machine that has all tools, and none but these; its environment."""
    fake_tool("g++", "echo 12.2.0")
    fake_tool("make", "echo GNU Make 4.3")
    fake_tool("cmake", "echo cmake version 3.25.1")
    folder = str(tmp_path / "tools")
    monkeypatch.setattr(horovod_prerequisites, "search_path", lambda environ: folder)
    return {"PATH": folder}


def test_missing_on_a_complete_machine_is_nothing(machine: dict[str, str]) -> None:
    assert find_missing(machine, "2.13.0") == []


@pytest.mark.parametrize(
    ("tool", "what", "command"),
    [
        ("g++", "a C++ compiler", "apt-get install -y g++"),
        ("make", "make", "apt-get install -y make"),
        ("cmake", "cmake 3.21 or newer", "pip install 'cmake>=3.21'"),
    ],
)
def test_missing_tool_names_the_command(
    machine: dict[str, str], tmp_path: Path, tool: str, what: str, command: str
) -> None:
    (tmp_path / "tools" / tool).unlink()
    (missing,) = find_missing(machine, "2.13.0")
    assert missing.what == what
    assert command in missing.command


def test_missing_torch_names_pip_of_this_interpreter(machine: dict[str, str]) -> None:
    (missing,) = find_missing(machine, None)
    assert "torch" in missing.what
    assert missing.command == f"{sys.executable} -m pip install torch"


def test_missing_headers_name_python_dev(
    machine: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        horovod_prerequisites.sysconfig, "get_path", lambda name: str(tmp_path / "none")
    )
    (missing,) = find_missing(machine, "2.13.0")
    assert "Python.h" in missing.what
    assert missing.command == "apt-get install -y python3-dev"


def test_cmake_too_old_for_a_toolchain_from_the_environment_is_missing(
    machine: dict[str, str], fake_tool: FakeTool, tmp_path: Path
) -> None:
    (tmp_path / "tools" / "cmake").write_text("#!/bin/sh\necho cmake version 3.18.4\n")
    (missing,) = find_missing(machine, "2.13.0")
    assert "3.18" in missing.what
    assert "pip install 'cmake>=3.21'" in missing.command


def test_cxx_that_is_not_a_compiler_is_named(machine: dict[str, str]) -> None:
    (missing,) = find_missing({**machine, "CXX": "no-such-compiler"}, "2.13.0")
    assert "CXX=no-such-compiler" in missing.what
    assert missing.command == "unset CXX"


def test_compiler_identity_holds_name_and_major_version(
    machine: dict[str, str], fake_tool: FakeTool
) -> None:
    path = fake_tool("g++-14", "echo 14.1.0")
    assert find_compiler({**machine, "CXX": "g++-14"}) == Compiler(str(path), "g++-14", 14)
    default = find_compiler(machine)
    assert default is not None
    assert default.identity == "g++-12"


def test_torch_version_is_that_of_this_interpreter() -> None:
    import torch

    assert torch_version() == torch.__version__
