"""What a converted convolution may be called with.

Shapes: I inner rows, E edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..partition.local_partition import Partition
from .locality import PER_EDGE


def check_call(given: Mapping[str, Any], layer: str, num_inner: int) -> None:
    """Raise where a call of a converted convolution cannot be right.

    Args:
        given: Its arguments by name, without `self`.
        layer: Name of the layer, for messages.
        num_inner: Number of inner rows, I.

    Raises:
        TypeError: `x` or `edge_index` is of another kind.
        ValueError: An argument would need halo rows of its own.
    """
    x = given.get("x")
    if not isinstance(x, Tensor):
        raise TypeError(
            f"'{layer}': expected one tensor of inner rows for 'x', got "
            f"{type(x).__name__}. A converted layer makes pairs of rows by itself."
        )
    edge_index = given.get("edge_index")
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        raise TypeError(
            f"'{layer}': expected the partition's edge_index [2, E] for 'edge_index', "
            f"got {type(edge_index).__name__}. Sparse adjacency matrices are not supported."
        )
    for name, value in given.items():
        if name in ("x", "edge_index", "return_attention_weights") or value is None:
            continue
        if name == "size":
            raise ValueError(f"'{layer}': expected None for 'size', got {value}.")
        if name not in PER_EDGE:
            raise ValueError(
                f"'{layer}': expected None for '{name}', got {type(value).__name__}; "
                f"only 'x' is given halo rows ({num_inner} inner rows here)."
            )


def check_norm_arguments(given: Mapping[str, Any], layer: str, partition: Partition) -> None:
    """Raise where a `GCNConv` that normalises is not called with the partition's edges.

    Args:
        given: Its arguments by name.
        layer: Name of the layer, for messages.
        partition: This rank's partition.

    Raises:
        ValueError: The edges or weights are others.
    """
    if not _same(given["edge_index"], partition.edge_index):
        raise ValueError(
            f"'{layer}': expected partition.edge_index for 'edge_index' of a GCNConv "
            "that normalises, got other edges, whose global degrees are unknown. Construct it "
            "with normalize=False and pass weights that you normalised."
        )
    if not _same(given.get("edge_weight"), partition.edge_weight):
        raise ValueError(
            f"'{layer}': expected partition.edge_weight for 'edge_weight' of a GCNConv "
            "that normalises, got something else. Pass part.edge_weight, which is None for a "
            "graph without weights."
        )


def _same(given: Tensor | None, known: Tensor | None) -> bool:
    if given is None or known is None:
        return given is known
    return given.shape == known.shape and given.data_ptr() == known.data_ptr()
