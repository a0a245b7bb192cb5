"""The face: every name is found, nothing heavy is imported before it is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import horovod_sylvie

FACE = Path(horovod_sylvie.__file__)


def test_face_on_import_brings_neither_torch_nor_horovod() -> None:
    program = "import sys, horovod_sylvie; print({'torch', 'horovod'} & set(sys.modules))"
    outcome = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert outcome.stdout.strip() == "set()"


@pytest.mark.parametrize("name", horovod_sylvie.__all__)
def test_face_gives_every_public_name(name: str) -> None:
    assert getattr(horovod_sylvie, name) is not None
    assert name in dir(horovod_sylvie)


def test_face_for_type_checkers_names_the_same_modules() -> None:
    (block,) = [node for node in ast.parse(FACE.read_text()).body if isinstance(node, ast.If)]
    static = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert static == dict(horovod_sylvie._MODULE_OF)
    assert {*static, "__version__"} == set(horovod_sylvie.__all__)


def test_face_of_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'DistributedOptimiser'"):
        horovod_sylvie.DistributedOptimiser  # noqa: B018 - the access is what is tested


@pytest.mark.parametrize(
    ("package", "command"),
    [("torch", "pip install torch"), ("pymetis", "pip install 'horovod_sylvie[gnn]'")],
)
def test_face_without_a_package_names_the_command(
    monkeypatch: pytest.MonkeyPatch, package: str, command: str
) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr(horovod_sylvie.importlib, "import_module", fail)
    monkeypatch.delitem(vars(horovod_sylvie), "partition_graph", raising=False)
    with pytest.raises(ImportError, match="partition_graph needs") as failure:
        horovod_sylvie.partition_graph  # noqa: B018 - the access is what is tested
    assert command in str(failure.value)
