"""What holds for all sources of the CUDA half."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from tests.cuda_shim import build

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for folder in ("cpp", "cuda") for path in (ROOT / folder).iterdir())


def test_sources_ask_the_compiler_about_cuda_once():
    asked = [
        f"{path.name}: {line}"
        for path in SOURCES
        for line in path.read_text().splitlines()
        if re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b.*(CUDA|NVCC)", line)
    ]
    assert asked == ["host_device.hpp: #if defined(__CUDACC__)"]


def test_build_lists_every_source():
    listed = (ROOT / "CMakeLists.txt").read_text()
    sources = [path for path in SOURCES if path.suffix in {".cpp", ".cu"}]
    assert [path.name for path in sources if f"{path.parent.name}/{path.name}" not in listed] == []


@pytest.mark.timeout(300)  # it may be the first that compiles
def test_shared_memory_is_where_the_host_fills_it_with_garbage(
    cuda_on_host: ModuleType, shim_folder: Path
):
    """Hold that no array of shared memory is in a template, where g++ forgets its section."""
    kept_apart = []
    for path in build.objects_of_kernels(shim_folder):
        symbols = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True)
        found = re.findall(r" [bBuV] (_ZZ\w+)", symbols.stdout)
        kept_apart += [f"{path.name}: {name}" for name in found]
    assert kept_apart == []


SPILLING = """
__global__ void __launch_bounds__(1024, 2) spills(float* p) {
  float x[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i] = p[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 64; ++i) p[i * 1024 + threadIdx.x] = x[63 - i] * x[i];
}
"""


@pytest.mark.timeout(300)
def test_build_refuses_a_kernel_that_spills_registers(tmp_path: Path):
    flags = re.search(r"-Xptxas=-warn-spills\S*-Werror", (ROOT / "CMakeLists.txt").read_text())
    assert flags is not None
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    command = ["nvcc", flags[0], "-arch=sm_80", "--cubin", "-o", str(tmp_path / "kernel.cubin")]
    fits = SPILLING.replace("(1024, 2)", "(1024, 1)").replace("64", "8").replace("63", "7")
    for source, text in ((fits, ""), (SPILLING, "Registers are spilled")):
        (tmp_path / "kernel.cu").write_text(source)
        done = subprocess.run(
            [*command, str(tmp_path / "kernel.cu")], capture_output=True, text=True, check=False
        )
        assert (done.returncode != 0) == bool(text)
        assert text in done.stderr


def test_kernels_neither_wait_nor_allocate_nor_know_torch():
    forbidden = r"Synchronize\(|cudaMalloc|cudaFree|<torch|ATen|<<<|use_fast_math"
    found = [
        f"{path.name}: {line}"
        for path in SOURCES
        for line in path.read_text().splitlines()
        if re.search(forbidden, line.partition("//")[0])
    ]
    assert found == []
