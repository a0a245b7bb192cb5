"""Build the native extension with CMake; everything else is in pyproject.toml."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CMAKE_MINIMUM = (3, 18)


def cmake_is_new_enough() -> bool:
    """Tell whether the cmake on PATH can build us, so that PyPI's is not downloaded."""
    if shutil.which("cmake") is None:
        return False
    text = subprocess.run(
        ["cmake", "--version"], capture_output=True, text=True, check=False
    ).stdout
    version = re.search(r"version (\d+)\.(\d+)", text)
    return version is not None and (int(version[1]), int(version[2])) >= CMAKE_MINIMUM


class CMakeBuild(build_ext):
    """Configure and build one CMake target per extension."""

    def build_extension(self, ext: Extension) -> None:
        """Run CMake for `ext` and leave the library where setuptools expects it.

        Honours CMAKE_ARGS and CMAKE_BUILD_PARALLEL_LEVEL (default: one job per core).
        """
        import pybind11  # a build requirement: at module level, `setup.py --help` would need it

        library = Path(self.get_ext_fullpath(ext.name)).resolve()
        build_folder = Path(self.build_temp).resolve() / ext.name
        build_folder.mkdir(parents=True, exist_ok=True)
        # An earlier build's options, and its paths into pip's temporary folders, are not ours
        (build_folder / "CMakeCache.txt").unlink(missing_ok=True)
        configure = [
            "cmake",
            "-S",
            str(Path(__file__).resolve().parent),
            "-B",
            str(build_folder),
            f"-DCMAKE_BUILD_TYPE={'Debug' if self.debug else 'Release'}",
            f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={library.parent}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
            *shlex.split(os.environ.get("CMAKE_ARGS", "")),
        ]
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count() or 1)
        subprocess.run(configure, check=True)
        subprocess.run(["cmake", "--build", str(build_folder), "--parallel", jobs], check=True)


setup(
    ext_modules=[Extension("horovod_sylvie._native", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
    # setuptools' PEP 517 hook reports this list to pip as further build requirements
    setup_requires=[] if cmake_is_new_enough() else ["cmake>=3.18"],
)
