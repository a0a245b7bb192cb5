"""The store keeps whole wheels only, and a build that fails says why."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from horovod_sylvie.commands import horovod_wheel
from horovod_sylvie.commands.horovod_wheel import (
    WheelStore,
    build_wheel,
    default_folder,
    explain_failure,
    wheel_command,
)

from .conftest import FakeTool

NAME = "horovod-0.28.1-cp311-cp311-linux_x86_64.whl"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / NAME
    path.write_bytes(b"wheel" * 1000)
    return path


def test_store_without_folder_finds_nothing(tmp_path: Path) -> None:
    assert WheelStore(tmp_path / "none").find("key") is None


def test_store_gives_back_the_wheel_of_its_key_only(tmp_path: Path, wheel: Path) -> None:
    store = WheelStore(tmp_path / "store")
    kept = store.keep("key", wheel, {"torch": "2.13.0"})
    assert store.find("key") == kept
    assert store.find("other") is None
    assert kept.read_bytes() == wheel.read_bytes()
    assert json.loads((kept.parent / "facts.json").read_text()) == {"torch": "2.13.0"}


def test_store_keeping_twice_replaces_and_leaves_nothing_behind(
    tmp_path: Path, wheel: Path
) -> None:
    store = WheelStore(tmp_path / "store")
    store.keep("key", wheel, {})
    wheel.write_bytes(b"newer")
    kept = store.keep("key", wheel, {})
    assert kept.read_bytes() == b"newer"
    assert sorted(path.name for path in kept.parent.iterdir()) == ["facts.json", NAME]


def test_store_with_many_writers_holds_one_whole_wheel(tmp_path: Path, wheel: Path) -> None:
    store = WheelStore(tmp_path / "store")
    writers = [threading.Thread(target=store.keep, args=("key", wheel, {})) for _ in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    kept = store.find("key")
    assert kept is not None
    assert kept.read_bytes() == wheel.read_bytes()


def test_store_write_that_is_cut_short_is_not_found(tmp_path: Path) -> None:
    folder = tmp_path / "key" / ".writing-x"
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(b"wh")
    assert WheelStore(tmp_path).find("key") is None


def test_store_folder_is_taken_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HVS_WHEEL_DIR", str(tmp_path))
    assert default_folder() == tmp_path
    monkeypatch.setenv("HVS_WHEEL_DIR", "")
    assert default_folder() == Path.home() / ".cache" / "horovod-sylvie"


def test_wheel_command_keeps_torch_visible_and_pips_cache_out() -> None:
    command = wheel_command("folder")
    for option in ("--no-build-isolation", "--no-cache-dir", "--no-deps"):
        assert option in command
    assert command[-1] == "horovod==0.28.1"


def test_build_shows_the_toolchain_to_pip_and_logs_its_output(
    monkeypatch: pytest.MonkeyPatch, fake_tool: FakeTool, tmp_path: Path
) -> None:
    script = f'cat "$CMAKE_TOOLCHAIN_FILE"; echo "$FLAVOUR"; touch "$1/{NAME}"'
    pip = fake_tool("pip", script)
    monkeypatch.setattr(horovod_wheel, "wheel_command", lambda folder: [str(pip), str(folder)])
    folder = tmp_path / "build"
    folder.mkdir()
    log = tmp_path / "logs" / "build.log"
    env = {"FLAVOUR": "vanilla", "PATH": "/usr/bin:/bin"}
    assert build_wheel(folder, env, "set(A 1)\n", log) == folder / NAME
    assert log.read_text() == "set(A 1)\nvanilla\n"


@pytest.mark.parametrize("status", [0, 3])
def test_build_without_a_wheel_raises_and_shows_the_log(
    monkeypatch: pytest.MonkeyPatch, fake_tool: FakeTool, tmp_path: Path, status: int
) -> None:
    pip = fake_tool("pip", f"echo the compiler is sad; exit {status}")
    monkeypatch.setattr(horovod_wheel, "wheel_command", lambda folder: [str(pip)])
    log = tmp_path / "build.log"
    with pytest.raises(RuntimeError, match="the build of Horovod failed") as failure:
        build_wheel(tmp_path, {}, "", log)
    assert str(log) in str(failure.value)
    assert "the compiler is sad" in str(failure.value)


@pytest.mark.parametrize(
    ("line", "cure"),
    [
        ("error: #error C++17 or later compatible compiler is required", "toolchain file"),
        ("Compatibility with CMake < 3.5 has been removed", "toolchain file"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "MAKEFLAGS=-j1"),
        ("fatal error: Python.h: No such file or directory", "python3-dev"),
        ("write failed: No space left on device", "disk is full"),
        ("Could NOT find NCCL (missing: NCCL_INCLUDE_DIR)", "HOROVOD_NCCL_HOME"),
        ("Could NOT find MPI (missing: MPI_CXX_FOUND)", "libopenmpi-dev"),
        ("ModuleNotFoundError: No module named 'packaging'", "setuptools wheel packaging"),
        ("ERROR: No matching distribution found for horovod==0.28.1", "network"),
        ("something else", "not a known one"),
    ],
)
def test_failure_with_a_known_symptom_names_its_cure(tmp_path: Path, line: str, cure: str) -> None:
    log = tmp_path / "build.log"
    log.write_text("\n".join(["start", line, *["make: *** stop"] * 40]))
    text = explain_failure(log)
    assert cure in text.partition("Likely cause: ")[2]
    assert text.count("make: *** stop") == 25
