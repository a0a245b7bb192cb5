"""The headers of cpp/, taken together."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.object_files import compiler

FOLDER = Path(__file__).resolve().parents[2] / "cpp"


def test_headers_of_kernels_can_be_included_together(tmp_path: Path) -> None:
    """Hold that no two of them give one name two meanings, which no linker would notice."""
    program = compiler()
    if program is None:
        pytest.skip("needs a C++ compiler")
    headers = [path for path in sorted(FOLDER.glob("*.hpp")) if "pybind11" not in path.read_text()]
    assert len(headers) > 20
    source = tmp_path / "all.cpp"
    source.write_text("".join(f'#include "{path.name}"\n' for path in headers))
    command = [program, "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    command += [f"-I{FOLDER}", "-DHVS_BUILT_WITH_CUDA=0", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
