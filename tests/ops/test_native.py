"""Loading the native library, and the twin that runs, logged once, where it cannot be loaded."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import re
import types
from pathlib import Path

import pytest
import torch

from horovod_sylvie.ops import native, row_kernels
from horovod_sylvie.ops.pack_rows import pack_rows, unpack_rows

from .row_cases import pack_twin


@pytest.fixture(autouse=True)
def forgotten_library():
    """Let each test load for itself, and the tests after it too."""
    caches = (native.load_native, native.native_or_none, native.warn_slow)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def break_import(monkeypatch: pytest.MonkeyPatch, module: object) -> None:
    def import_module(name: str) -> object:
        assert name == "horovod_sylvie._native"
        if isinstance(module, Exception):
            raise module
        return module

    monkeypatch.setattr(native.importlib, "import_module", import_module)


def test_load_native_twice_is_one_module_with_a_known_instruction_set():
    loaded = native.native_or_none()
    if loaded is None:
        pytest.skip("needs the native library, which is not built")
    assert loaded is native.load_native()
    assert loaded.instruction_set() in ("baseline", "avx2", "avx512")


def test_load_native_built_from_other_sources_raises(monkeypatch: pytest.MonkeyPatch):
    break_import(monkeypatch, types.SimpleNamespace(INTERFACE_VERSION=0))
    with pytest.raises(ImportError, match=r"expected interface version \d+ .* got 0.*pip install"):
        native.load_native()


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "--no-cache-dir horovod_sylvie"),
        ({"url": "https://site/a.whl", "archive_info": {}}, "--no-cache-dir horovod_sylvie"),
        ({"url": "file:///src/a", "dir_info": {}}, "/src/a"),
        ({"url": "file:///src/a", "dir_info": {"editable": True}}, "-e /src/a"),
        ({"url": "file:///my%20src/a", "dir_info": {}}, "'/my src/a'"),
    ],
    ids=["index", "wheel", "directory", "editable", "quoted"],
)
def test_rebuild_command_is_that_of_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: dict[str, object] | None, command: str
):
    in_clone = tmp_path / "clone" / "horovod_sylvie.egg-info" / "PKG-INFO"
    installed = tmp_path / "site" / "horovod_sylvie-0.1.0.dist-info"
    for metadata in (in_clone, installed / "METADATA"):
        metadata.parent.mkdir(parents=True)
        metadata.write_text("Name: horovod_sylvie\nVersion: 0.1.0\n")
    if origin is not None:
        (installed / "direct_url.json").write_text(json.dumps(origin))
    path = [str(tmp_path / "clone"), str(tmp_path / "site")]
    found = list(importlib.metadata.distributions(name="horovod_sylvie", path=path))
    assert len(found) == 2
    monkeypatch.setattr(native.importlib.metadata, "distributions", lambda name: found)
    assert native.rebuild_command() == f"pip install --force-reinstall --no-deps {command}"


def test_rows_without_native_library_take_the_twin_and_log_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    break_import(monkeypatch, ImportError("no such file: _native.so"))
    rows = torch.randn(5, 9)
    expected, _ = pack_twin(rows, None, 1, "minmax")
    packed = torch.empty_like(expected)
    decoded = torch.empty(5, 9)
    with caplog.at_level(logging.WARNING, logger="horovod_sylvie.ops.native"):
        for _ in range(3):
            pack_rows(rows, None, bits=1, key=0xFEDCBA9876543210, out=packed)
            unpack_rows(packed, None, num_features=9, bits=1, out=decoded)
    assert torch.equal(packed, expected)
    assert len(caplog.records) == 1
    text = caplog.records[0].getMessage()
    assert "slower plain-PyTorch code runs" in text
    assert "no such file: _native.so" in text
    assert native.rebuild_command() in text


def library_with(problem: str) -> types.ModuleType:
    library = types.ModuleType("horovod_sylvie._native")
    library.INTERFACE_VERSION = native.INTERFACE_VERSION
    library.cuda_problem = lambda device_index: problem
    return library


def test_rows_on_a_gpu_that_cannot_run_kernels_take_the_twin_and_log_why_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    break_import(monkeypatch, library_with("no kernel image is available"))
    with caplog.at_level(logging.WARNING, logger="horovod_sylvie.ops.native"):
        assert row_kernels.native_for(torch.device("cuda", 0)) is None
        assert row_kernels.native_for(torch.device("cuda", 1)) is None
        assert row_kernels.native_for(torch.device("xpu", 0)) is None
    assert [record.getMessage() for record in caplog.records] == [
        "horovod_sylvie: slower plain-PyTorch code runs, because there is no kernel for packing "
        "rows on 'cuda' tensors: no kernel image is available",
        "horovod_sylvie: slower plain-PyTorch code runs, because there is no kernel for packing "
        "rows on 'xpu' tensors",
    ]


def test_kernel_of_a_gpu_that_is_not_there_raises_and_says_why():
    loaded = native.native_or_none()
    if loaded is None:
        pytest.skip("needs the native library, which is not built")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    rows = torch.randn(5, 9)
    packed = torch.zeros(5, 6, dtype=torch.uint8)
    problem = loaded.cuda_problem(0)
    runtime = loaded.cuda_runtime()
    if runtime is None:
        assert problem == "this library was built without CUDA"
        text = "expected None for 'stream', got a stream: this library was built without CUDA"
    else:
        assert problem == runtime["problem"]
        text = f"pack_rows: CUDA refused to run a kernel: {problem}"
    with pytest.raises(RuntimeError, match=re.escape(text)):
        row_kernels.pack_rows(
            loaded, rows, None, bits=1, code="minmax", key=0, out=packed, stream=0
        )
    assert not packed.any()
