"""Compiles CUDA sources for the host; see [Note: CUDA sources on the host] in `cuda_runtime.h`."""

from __future__ import annotations

import ctypes
import importlib.util
import sysconfig
from pathlib import Path
from types import ModuleType

import pybind11

from tests.object_files import ObjectFiles

ROOT = Path(__file__).resolve().parents[2]
SHIM = ROOT / "tests" / "cuda_shim"
STREAM = 0x5EED  # the one stream that the shim knows

_FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-pthread")
_SHIM_FLAGS = ("-O1", "-U_FORTIFY_SOURCE", "-Wall", "-Wextra", f"-I{SHIM}", f"-I{ROOT / 'cpp'}")
_CUDA_FLAGS = (
    *_SHIM_FLAGS,
    "-x",
    "c++",
    "-g1",
    "-Werror",
    "-Wno-unknown-pragmas",  # of nvcc: unroll
    "-fno-strict-aliasing",  # atomics take unsigned long long, which no int64_t is
    "-fsanitize=alignment,bounds,shift,signed-integer-overflow,integer-divide-by-zero,"
    "float-cast-overflow",
    "-fno-sanitize-recover=all",
    f"-I{ROOT / 'cuda'}",
    "-DHVS_BUILT_WITH_CUDA=1",
)
# What the shim does not stand for: the bindings, and the CPU half that they link
_BINDING_FLAGS = (
    "-O0",
    "-DHVS_BUILT_WITH_CUDA=1",
    "-isystem",
    pybind11.get_include(),
    "-isystem",
    sysconfig.get_path("include"),
)


def build_native(folder: Path) -> Path:
    """Build `_native` with its CUDA half on the host.

    Args:
        folder: For objects, which are kept and used again where their sources are the same.

    Returns:
        The extension module.
    """
    sources = [*(ROOT / "cpp").glob("*.cpp"), *(ROOT / "cuda").glob("*.cu"), *SHIM.glob("*.cpp")]
    return _link("native", sources, folder)


def build_faults(folder: Path) -> Path:
    """Build the library of `faults.cu`; see `build_native`."""
    return _link("faults", [SHIM / "faults.cu", *SHIM.glob("*.cpp")], folder)


def objects_of_kernels(folder: Path) -> list[Path]:
    """Return the objects of cuda/, which `build_native` has left in a folder."""
    return sorted(folder.glob("*.cu-*.o"))


def load_module(path: Path) -> ModuleType:
    """Import an extension module called `_native` from a path; `sys.modules` is left alone."""
    spec = importlib.util.spec_from_file_location("cuda_shim._native", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def num_launches(module: ModuleType) -> int:
    """Return how many kernels a module has launched since it was loaded."""
    assert module.__file__ is not None
    count: int = ctypes.CDLL(module.__file__).cuda_shim_num_launches()
    return count


def _flags_of(source: Path) -> tuple[str, ...]:
    if source.suffix == ".cu":
        return (*_FLAGS, *_CUDA_FLAGS)
    return (*_FLAGS, *(_SHIM_FLAGS if source.parent == SHIM else _BINDING_FLAGS))


def _headers_of(source: Path) -> list[Path]:
    """Return what a source may include; cpp/ includes nothing from elsewhere."""
    folders = [ROOT / "cpp"] if source.parent.name == "cpp" else [ROOT / "cpp", ROOT / "cuda", SHIM]
    kinds = {".h", ".hpp", ".inl", ".cuh"}
    return sorted(file for each in folders for file in each.iterdir() if file.suffix in kinds)


def _link(name: str, sources: list[Path], folder: Path) -> Path:
    """Compile what has changed and link all; returns a shared library."""
    files = ObjectFiles(folder, _flags_of, _headers_of)
    # The longest first
    ordered = sorted(sources, key=lambda source: ("binding" not in source.name, source.name))
    # -Bsymbolic: torch brings a sanitizer's library, or none; ours are the handlers in use
    flags = ("-shared", "-pthread", "-Wl,-Bsymbolic")
    return files.link(name, ".so", files.compile(ordered), flags)
