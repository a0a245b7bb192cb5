"""Reading datasets of PyG and OGB by name.

Here: `read_dataset`. Not here: files (npz_reader.py, pyg_reader.py).
"""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import numpy as np

from .graph import Array, Graph
from .pyg_reader import graph_from_data

_OGB_PREFIX = "ogbn-"
# Everyone says "Cora", but the class is called Planetoid.
_PLANETOID = ("Cora", "CiteSeer", "PubMed")


def read_dataset(name: str, root: str | os.PathLike[str] | None) -> Graph:
    """Read a dataset of PyG or OGB, downloading it if it is not at `root` yet.

    Args:
        name: "Class/Name" or "Class" of torch_geometric.datasets ("Planetoid/Cora", "Reddit"), one
            of Cora, CiteSeer, PubMed, or "ogbn-...".
        root: Where datasets are kept.

    Returns:
        The checked graph.

    Raises:
        ValueError: There is no such file or dataset, `root` is missing, or the dataset is not one
            graph with labels and splits.
        ImportError: It is an OGB dataset and ogb is not installed.
        RuntimeError: It could not be downloaded or read.
    """
    if name.startswith(_OGB_PREFIX):
        return _read_ogb(name, _require_root(name, root))
    class_name, _, part = name.partition("/")
    if class_name in _PLANETOID and not part:
        class_name, part = "Planetoid", class_name
    dataset_class = _find_class(name, class_name)
    folder = str(_require_root(name, root) / class_name)
    arguments = _arguments(name, dataset_class, part)
    try:
        dataset = dataset_class(root=folder, **arguments)
    except (
        Exception
    ) as error:  # downloads, archives and pickles fail in many ways, all with one cure
        raise _unreadable(name, folder, error) from error
    if len(dataset) != 1:
        raise ValueError(
            f"{name}: expected a dataset with one graph, got {len(dataset)} graphs. "
            "Choose one in Python and pass the Data to partition_graph."
        )
    return graph_from_data(dataset[0], name)


def _find_class(name: str, class_name: str) -> Any:
    from torch_geometric import datasets

    if class_name.isidentifier() and class_name in datasets.__all__:
        return getattr(datasets, class_name)
    raise ValueError(
        "read_graph: expected a .npz or .pt file, 'synthetic:...', or a dataset name for "
        f"'source', got {name!r}, which is none: no such file, and no such class in "
        "torch_geometric.datasets. Examples: data.npz, Cora, Planetoid/PubMed, Reddit, ogbn-arxiv."
    )


def _arguments(name: str, dataset_class: Any, part: str) -> dict[str, str]:
    parameters = inspect.signature(dataset_class).parameters
    takes_name = "name" in parameters
    if takes_name and not part:
        raise ValueError(f"{name}: expected '{name}/<name>' for a dataset of several, got no name.")
    if part and not takes_name:
        raise ValueError(
            f"{name}: expected no name after '/', got {part!r}: it is a single dataset."
        )
    return {"name": part} if part else {}


def _require_root(name: str, root: str | os.PathLike[str] | None) -> Path:
    if root is None:
        raise ValueError(
            f"{name}: expected 'root' (--root) for a dataset given by name, got none. "
            "Say where it is, or where to download it to."
        )
    return Path(root)


def _read_ogb(name: str, root: Path) -> Graph:
    try:
        from ogb.nodeproppred import NodePropPredDataset
    except ImportError as error:
        raise ImportError(
            f"{name}: expected the package ogb, but it is not installed. Run `pip install ogb`."
        ) from error
    try:
        dataset = NodePropPredDataset(name=name, root=str(root))
    except Exception as error:  # as above
        raise _unreadable(name, str(root), error) from error
    graph, labels = dataset[0]
    if graph.get("node_feat") is None or "edge_index" not in graph:
        raise ValueError(
            f"{name}: expected one homogeneous graph with node features, got {sorted(graph)}. "
            "Prepare it in Python and pass a Data to partition_graph."
        )
    num_nodes = int(graph["num_nodes"])
    splits = dataset.get_idx_split()
    return Graph(
        num_nodes=num_nodes,
        edge_index=graph["edge_index"],
        x=graph["node_feat"],
        y=labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels,
        train_mask=_mask(splits["train"], num_nodes),
        val_mask=_mask(splits["valid"], num_nodes),
        test_mask=_mask(splits["test"], num_nodes),
        edge_attr=graph.get("edge_feat"),
        name=name,
    )


def _mask(ids: Array, num_nodes: int) -> Array:
    mask = np.zeros(num_nodes, dtype=np.bool_)
    mask[ids] = True
    return mask


def _unreadable(name: str, folder: str, error: Exception) -> RuntimeError:
    return RuntimeError(
        f"{name}: expected to read or download it under {folder}, got {type(error).__name__}: "
        f"{error}. Check the connection, or copy the dataset there from a machine that has it."
    )
