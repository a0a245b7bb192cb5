"""What holds for all sources of the CUDA half."""

from __future__ import annotations

import re
from pathlib import Path

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


def test_kernels_neither_wait_nor_allocate_nor_know_torch():
    forbidden = r"Synchronize\(|cudaMalloc|cudaFree|<torch|ATen|<<<|use_fast_math"
    found = [
        f"{path.name}: {line}"
        for path in SOURCES
        for line in path.read_text().splitlines()
        if re.search(forbidden, line.partition("//")[0])
    ]
    assert found == []
