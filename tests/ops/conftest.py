"""The native library with its CUDA half on the host; see tests/cuda_shim/cuda_runtime.h."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.cuda_shim import build
from tests.object_files import compiler


@pytest.fixture(scope="session")
def shim_folder(pytestconfig: pytest.Config) -> Path:
    """Return where what is built is kept until its sources change."""
    if compiler() is None:
        pytest.skip("needs a C++ compiler")
    return Path(pytestconfig.cache.mkdir("cuda_shim"))


@pytest.fixture(scope="session")
def cuda_on_host(shim_folder: Path) -> ModuleType:
    """Return a `_native` whose CUDA kernels run on the host, in the stream `build.STREAM`."""
    return build.load_module(build.build_native(shim_folder))
