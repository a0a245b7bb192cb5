"""Reading a graph from PyG: a `Data` in memory or saved with torch.save.

Here: `graph_from_data` and `read_pyg`. Not here: named datasets (dataset_reader.py).
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .graph import Array, Graph

if TYPE_CHECKING:
    from torch_geometric.data import Data

_MASKS = ("train_mask", "val_mask", "test_mask")


def graph_from_data(data: Data, name: str) -> Graph:
    """Take a graph out of a PyG `Data`.

    Args:
        data: Needs `x`, `y`, `edge_index` with every message (undirected edges in both directions,
            as PyG keeps them), and the three masks; `edge_weight` and `edge_attr` are optional.
        name: What errors call it.

    Returns:
        The checked graph.

    Raises:
        TypeError: `data` is no homogeneous PyG `Data`.
        ValueError: Something is missing or wrong.
    """
    from torch_geometric.data import Data

    if not isinstance(data, Data):
        raise TypeError(
            f"{name}: expected a torch_geometric.data.Data with one graph, got "
            f"{type(data).__name__}. Of a dataset take dataset[0]; a HeteroData becomes one with "
            "to_homogeneous()."
        )
    _check_fields(data, name)
    return Graph(
        num_nodes=_num_nodes(data, name),
        edge_index=_array(data.edge_index, name, "edge_index"),
        x=_features(data.x, name),
        y=_array(data.y, name, "y"),
        train_mask=_array(data.train_mask, name, "train_mask"),
        val_mask=_array(data.val_mask, name, "val_mask"),
        test_mask=_array(data.test_mask, name, "test_mask"),
        edge_weight=_optional(data, name, "edge_weight"),
        edge_attr=_optional(data, name, "edge_attr"),
        name=name,
    )


def read_pyg(path: Path) -> Graph:
    """Read a `Data`, or the dict that `Data.to_dict()` returns, saved with torch.save.

    Only tensors and PyG's own data classes are unpickled, so that a file cannot run code.

    Args:
        path: The file.

    Returns:
        The checked graph; its name is the file's.

    Raises:
        RuntimeError: The file is damaged or cannot be read safely.
        TypeError: It holds something else.
        ValueError: Something is missing or wrong.
    """
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import EdgeStorage, GlobalStorage, NodeStorage

    if not hasattr(torch.serialization, "safe_globals"):
        raise RuntimeError(
            f"{path}: expected torch 2.5 or newer to read a saved Data safely, got "
            f"{torch.__version__}. Upgrade it, or load the file yourself and pass the Data to "
            "partition_graph."
        )
    allowed = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage, NodeStorage, EdgeStorage]
    try:
        with torch.serialization.safe_globals(allowed):
            data: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the parsers in torch.load raise whatever junk makes them trip over
        raise RuntimeError(
            f"{path}: expected a PyG Data that can be read safely (tensors and PyG classes only), "
            f"got {_obstacle(error)}. Save a plain one with "
            "torch.save(Data.from_dict(data.to_dict()), path), or, if you trust the file, load it "
            "yourself and pass the Data to partition_graph."
        ) from error
    if isinstance(data, dict):
        data = Data.from_dict(data)
    return graph_from_data(data, str(path))


def _obstacle(error: Exception) -> str:
    """Return what torch.load met, without its advice to load the file unsafely."""
    refused = re.search(r"GLOBAL (\S+)", str(error))
    if refused:
        return f"one that holds {refused[1]}"
    lines = str(error).strip().splitlines()
    if isinstance(error, pickle.UnpicklingError) or not lines:
        return "a file that torch.load cannot read"
    return f"a file that torch.load cannot read ({lines[0].rstrip('.')})"


def _check_fields(data: Data, name: str) -> None:
    for field in ("edge_index", "x", "y"):
        if data.get(field) is None:
            cure = " (an 'adj_t' must be turned back)" if field == "edge_index" else ""
            raise ValueError(f"{name}: expected '{field}' in the Data, got none{cure}.")
    missing = [field for field in _MASKS if data.get(field) is None]
    if missing:
        raise ValueError(
            f"{name}: expected {', '.join(_MASKS)}, {missing} missing. Make a split, for example "
            "with torch_geometric.transforms.RandomNodeSplit(), save the Data and pass that file."
        )


def _num_nodes(data: Data, name: str) -> int:
    if data.num_nodes is None:
        raise ValueError(f"{name}: expected 'num_nodes' or 'x' in the Data, got neither.")
    return int(data.num_nodes)


def _features(x: object, name: str) -> Array | sp.csr_array:
    if not isinstance(x, Tensor) or x.layout == torch.strided:
        return _array(x, name, "x")
    coo = x.detach().cpu().to_sparse_coo().coalesce()
    rows, columns = coo.indices().numpy()
    return sp.coo_array((coo.values().numpy(), (rows, columns)), shape=tuple(coo.shape)).tocsr()


def _optional(data: Data, name: str, field: str) -> Array | None:
    value = data.get(field)
    return None if value is None else _array(value, name, field)


def _array(value: object, name: str, field: str) -> Array:
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        kind = f"{value.layout} tensor" if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(f"{name}: expected a dense tensor for '{field}', got a {kind}.")
    tensor = value.detach().cpu()
    # numpy has no bfloat16; float32 holds every value of it.
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
