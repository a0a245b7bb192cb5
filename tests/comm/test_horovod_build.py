"""Horovod is described from outside, and refused with the command that repairs it."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from horovod_sylvie.comm import horovod_build
from horovod_sylvie.comm.horovod_build import describe_horovod, require_horovod, verify_horovod

COMMAND = "python -m horovod_sylvie install-horovod"


@pytest.fixture
def fake_horovod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that stands for an installed Horovod; returns that of `horovod.torch`."""
    folder = tmp_path / "horovod" / "torch"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "__init__.py").touch()
    for name in [name for name in sys.modules if name.partition(".")[0] == "horovod"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.28.1")
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "horovod"]:
        del sys.modules[name]


def built_for(folder: Path, torch: str) -> None:
    (folder.parent / "metadata.json").write_text(f'{{"pytorch": "{torch}", "dummy": "none"}}')


def test_require_without_horovod_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "horovod", None)
    monkeypatch.delitem(sys.modules, "horovod.torch", raising=False)  # imported by another test
    with pytest.raises(ImportError, match=rf"is not installed\. Run: {COMMAND}"):
        require_horovod()


def test_require_without_torch_extension_names_the_command(fake_horovod: Path) -> None:
    (fake_horovod / "__init__.py").write_text("_MPI_LIB_AVAILABLE = False")
    with pytest.raises(ImportError, match=rf"without its torch extension\. Run: {COMMAND}"):
        require_horovod()


def test_require_with_another_torch_names_the_command(fake_horovod: Path) -> None:
    (fake_horovod / "__init__.py").write_text("raise ImportError('undefined symbol: _ZN5torch')")
    with pytest.raises(ImportError, match=rf"undefined symbol: _ZN5torch.*{COMMAND} --force"):
        require_horovod()


def test_require_with_a_dependency_missing_passes_its_error_on(fake_horovod: Path) -> None:
    (fake_horovod / "__init__.py").write_text("import no_such_module")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        require_horovod()


def test_describe_without_horovod_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", fail)
    assert describe_horovod("2.13.0").problem == "not installed"


def test_describe_build_without_extension_says_so(fake_horovod: Path) -> None:
    text = "print('Extension horovod.torch has not been built'); _MPI_LIB_AVAILABLE = False"
    (fake_horovod / "__init__.py").write_text(text)
    build = describe_horovod("2.13.0")
    assert build.problem == "built without its torch extension"
    assert build.torch_version is None
    assert build.features == frozenset()


def test_describe_build_for_another_torch_names_both(fake_horovod: Path) -> None:
    (fake_horovod / "__init__.py").write_text("raise OSError('undefined symbol')")
    built_for(fake_horovod, "2.0.0")
    problem = describe_horovod("2.13.0").problem
    assert problem == "built for torch 2.0.0, but torch 2.13.0 is installed"


def test_describe_build_that_crashes_shows_how(fake_horovod: Path) -> None:
    (fake_horovod / "__init__.py").write_text("import os; os.abort()")
    built_for(fake_horovod, "2.13.0")
    problem = describe_horovod("2.13.0").problem
    assert problem is not None
    assert "cannot be imported" in problem
    assert "exit status -6" in problem


def test_describe_build_lists_its_features(fake_horovod: Path) -> None:
    lines = ["_MPI_LIB_AVAILABLE = True"]
    for name in ("gloo", "mpi", "nccl", "ccl", "ddl", "cuda", "rocm"):
        lines.append(f"def {name}_built(): return {name in ('gloo', 'mpi')}")
    (fake_horovod / "__init__.py").write_text("\n".join(lines))
    built_for(fake_horovod, "2.13.0")
    build = describe_horovod("2.13.0")
    assert build.problem is None
    assert build.features == {"gloo", "mpi"}


def test_describe_without_torch_does_not_import_horovod(fake_horovod: Path) -> None:
    (fake_horovod / "__init__.py").write_text("import os; os.abort()")
    assert describe_horovod(None).problem == "needs torch, which cannot be imported"


def test_describe_with_cut_metadata_knows_no_torch(fake_horovod: Path) -> None:
    (fake_horovod / "__init__.py").write_text("_MPI_LIB_AVAILABLE = False")
    (fake_horovod.parent / "metadata.json").write_text('{"pytorch": ')
    assert describe_horovod("2.13.0").torch_version is None


def test_verify_that_takes_too_long_is_a_problem(
    fake_horovod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fake_horovod / "__init__.py").write_text("import threading; threading.Event().wait()")
    monkeypatch.setattr(horovod_build, "CHILD_TIMEOUT_S", 1)
    assert verify_horovod() == "no answer within 1 s"


def test_verify_of_the_installed_horovod_finds_no_problem() -> None:
    pytest.importorskip("horovod", reason=f"needs Horovod: {COMMAND}")
    assert verify_horovod() is None
