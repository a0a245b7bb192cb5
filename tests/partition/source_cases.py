"""Small graphs in the forms that readers take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data


def npz_arrays() -> dict[str, Any]:
    return {
        "num_nodes": np.int64(4),
        "edge_index": np.array([[0, 1, 0], [1, 2, 3]], dtype=np.int32),
        "directed": np.int8(0),
        "x": np.arange(8, dtype=np.float16).reshape(4, 2),
        "y": np.array([0, 1, -1, 2], dtype=np.int16),
        "train_mask": np.array([1, 0, 0, 0], dtype=bool),
        "val_mask": np.array([0, 1, 0, 0], dtype=bool),
        "test_mask": np.array([0, 0, 1, 1], dtype=bool),
    }


def write_npz(path: Path, **changes: Any) -> Path:
    arrays = {**npz_arrays(), **changes}
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return path


def example_data(**changes: Any) -> Data:
    arrays = npz_arrays()
    values = {
        "edge_index": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
        "x": torch.arange(8.0).reshape(4, 2),
        "y": torch.tensor([0, 1, -1, 2]),
        **{name: torch.from_numpy(arrays[name]) for name in arrays if name.endswith("_mask")},
        **changes,
    }
    return Data(**{name: value for name, value in values.items() if value is not None})
