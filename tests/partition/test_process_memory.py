"""Readings of this process's memory: its own, whatever started it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from horovod_sylvie.partition.process_memory import peak_bytes, resident_bytes

BLOCK_BYTES = 64 << 20
ALLOWANCE_BYTES = 8 << 20


def test_peak_memory_keeps_what_was_held_and_given_back() -> None:
    before = resident_bytes()
    block = np.ones(BLOCK_BYTES, dtype=np.uint8)
    assert resident_bytes() > before + BLOCK_BYTES - ALLOWANCE_BYTES
    del block
    assert resident_bytes() < before + ALLOWANCE_BYTES
    assert peak_bytes() > before + BLOCK_BYTES - ALLOWANCE_BYTES


def test_peak_memory_of_a_child_is_not_that_of_its_parent() -> None:
    block = np.ones(4 * BLOCK_BYTES, dtype=np.uint8)
    program = (
        "from horovod_sylvie.partition.process_memory import peak_bytes\nprint(peak_bytes())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert int(done.stdout) < block.nbytes
