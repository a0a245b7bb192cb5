"""A whole graph in numpy: edges, features, labels and masks, checked once.

Here: class `Graph`, what every reader returns and every partitioner takes.
Not here: reading files (graph_readers.py), the checks' code (graph_checks.py), one rank's piece
of a graph (local_partition.py).

Shape letters: N nodes, E stored edges, F features, C classes, K split columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from . import graph_checks as checks

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph as message passing sees it, with everything that training needs.

    Invariant: once constructed, every id is in range, every length fits, every number is finite and
    every dtype is the one named below. Arrays that already fit are kept, not copied.

    Attributes:
        num_nodes: N, below 2**31.
        edge_index: Source ids in row 0, target ids in row 1. [2, E], int32
        x: Node features; dense, or scipy CSR (duplicate entries of a row add up, as in scipy).
            [N, F], float or integer; a partition holds them as float32
        y: Class of each node, -1 where unlabelled, [N], int64; or one column per label, each value
            in [0, 1], [N, C], float32 or uint8.
        train_mask: Training nodes, one column per split. [N] or [N, K] in, [N, K] bool kept
        val_mask: Validation nodes, likewise. One column next to K columns means "the same in every
            split".
        test_mask: Test nodes, likewise.
        edge_weight: One weight per stored edge, or None for an unweighted graph. [E], float32
        edge_attr: Attributes of each stored edge, or None. [E, ...], float or integer
        mirror: True if each undirected edge is stored once. The message list is then the stored
            edges followed by their mirror images, made late to save memory; a self-loop is its own
            image and occurs once.
        name: What errors call this graph; readers put the file name here.

    Raises:
        ValueError: An array has the wrong shape, an id out of range, a value that is not finite or
            not allowed. The message names the graph and the array.
        TypeError: An array has a dtype that cannot be meant.
    """

    num_nodes: int
    edge_index: Array
    x: Array | sp.csr_array
    y: Array
    train_mask: Array
    val_mask: Array
    test_mask: Array
    edge_weight: Array | None = None
    edge_attr: Array | None = None
    mirror: bool = False
    name: str = "graph"

    def __post_init__(self) -> None:
        """Check every array and bring it to the dtype and shape of the class docstring."""
        name, num_nodes = self.name, checks.node_count(self.name, self.num_nodes)
        edges = checks.edges(name, self.edge_index, num_nodes)
        num_edges = edges.shape[1]
        fixed: dict[str, Any] = {
            "num_nodes": num_nodes,
            "edge_index": edges,
            "x": checks.features(name, self.x, num_nodes),
            "y": checks.labels(name, self.y, num_nodes),
            "train_mask": checks.mask(name, "train_mask", self.train_mask, num_nodes),
            "val_mask": checks.mask(name, "val_mask", self.val_mask, num_nodes),
            "test_mask": checks.mask(name, "test_mask", self.test_mask, num_nodes),
            "mirror": bool(self.mirror),
        }
        if self.edge_weight is not None:
            fixed["edge_weight"] = checks.edge_weight(name, self.edge_weight, num_edges)
        if self.edge_attr is not None:
            fixed["edge_attr"] = checks.edge_attr(name, self.edge_attr, num_edges)
        for field, value in fixed.items():
            object.__setattr__(self, field, value)
        checks.split_columns(name, self.train_mask, self.val_mask, self.test_mask)

    @property
    def num_features(self) -> int:
        """Number of feature columns, F."""
        return int(self.x.shape[1])

    @property
    def multilabel(self) -> bool:
        """Whether `y` has one column per label instead of one class per node."""
        return self.y.ndim == 2

    @property
    def num_classes(self) -> int:
        """Number of classes: the largest label plus one, or the number of label columns."""
        if self.multilabel:
            return int(self.y.shape[1])
        return int(self.y.max(initial=-1)) + 1

    @property
    def num_splits(self) -> int:
        """Number of split columns, K."""
        masks = (self.train_mask, self.val_mask, self.test_mask)
        return max(int(mask.shape[1]) for mask in masks)

    @property
    def nbytes(self) -> int:
        """Bytes that the graph's arrays occupy in memory."""
        arrays = [self.edge_index, self.y, self.train_mask, self.val_mask, self.test_mask]
        arrays += [array for array in (self.edge_weight, self.edge_attr) if array is not None]
        arrays += feature_arrays(self.x).values()
        return sum(int(array.nbytes) for array in arrays)

    def message_edges(self) -> tuple[Array, Array]:
        """Return every message: the stored edges, then their mirror images if `mirror` is set.

        Returns:
            The edge list, [2, M] int32, and for each of its columns the stored edge that it comes
            from, so that `edge_weight[origin]` is the weight of each message, [M] int64.
        """
        origin = np.arange(self.edge_index.shape[1], dtype=np.int64)
        if not self.mirror:
            return self.edge_index, origin
        images = np.flatnonzero(self.edge_index[0] != self.edge_index[1])
        mirrored = self.edge_index[::-1, images]
        return np.concatenate([self.edge_index, mirrored], axis=1), np.concatenate([origin, images])

    def dense_features(self) -> Array:
        """Return the features as one dense array. [N, F], float32."""
        return dense_rows(self.x)


def feature_arrays(x: Array | sp.csr_array) -> dict[str, Array]:
    """Return the arrays that hold feature rows, by the names that they have on disk.

    Args:
        x: Dense or CSR features.

    Returns:
        "x", or "x_data", "x_indices" and "x_indptr"; shared, not copied.
    """
    if isinstance(x, np.ndarray):
        return {"x": x}
    return {"x_data": x.data, "x_indices": x.indices, "x_indptr": x.indptr}


def dense_rows(x: Array | sp.csr_array) -> Array:
    """Return feature rows, dense or CSR, as one dense array.

    Args:
        x: Features. [I, F], float or integer

    Returns:
        A new array. [I, F], float32
    """
    if isinstance(x, np.ndarray):
        return x.astype(np.float32)
    return np.asarray(x.astype(np.float32).toarray())
