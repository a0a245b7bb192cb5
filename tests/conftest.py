"""Fixtures that every test may use: one seed, and the graphs that may lie beside the repository."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session", autouse=True)
def single_thread() -> None:
    """Leave the cores to the ranks: tensors here are too small to be worth splitting."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> int:
    """Seed every generator, so that a test does not depend on those that ran before it."""
    value = 0
    random.seed(value)
    np.random.seed(value)  # libraries under test draw from the global generator
    torch.manual_seed(value)
    return value


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real graphs, or skip where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs the folder shared/data beside the repository")
    return SHARED_DATA
