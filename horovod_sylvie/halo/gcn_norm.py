"""Symmetric normalisation with the degrees of the whole graph.

A rank sees all in-edges of its inner nodes, so the degrees of inner nodes are right locally; those
of halo nodes are not, and normalising by them is the commonest error of partition-parallel GCN.
The partition carries every local row's global weighted in-degree for this.

Source: Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks" (ICLR
2017), equation 8; edge cases as in `torch_geometric.nn.conv.gcn_conv.gcn_norm`.

Shapes: I inner rows, H halo rows, E local edges.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..partition.local_partition import Partition


def gcn_norm(
    partition: Partition, *, improved: bool = False, add_self_loops: bool = True
) -> tuple[Tensor, Tensor]:
    """Return local edges with globally normalised weights.

    Equals, for the edges into inner nodes, what PyG's `gcn_norm` gives on the whole graph: give
    both results to a `GCNConv(normalize=False)`. `convert_model` does so by itself for a
    `GCNConv` that normalises.

    Args:
        partition: This rank's partition.
        improved: Whether added self-loops weigh 2 instead of 1. As in PyG, this has an effect on
            graphs with edge weights only.
        add_self_loops: Whether nodes without a self-loop get one.

    Returns:
        Edge index [2, E'], int64, and edge weights [E'], float32. With self-loops added, every
        inner node's loop stands at the end, in node order.
    """
    edge_index, weight = partition.edge_index, partition.edge_weight
    weighted = weight is not None
    if weight is None:
        weight = torch.ones(edge_index.shape[1], device=edge_index.device)
    if add_self_loops:
        fill = 2.0 if improved and weighted else 1.0
        loop = torch.where(torch.isnan(partition.loop_weight), fill, partition.loop_weight)
        keep = edge_index[0] != edge_index[1]
        nodes = torch.arange(partition.num_inner, device=edge_index.device)
        edge_index = torch.cat([edge_index[:, keep], torch.stack([nodes, nodes])], dim=1)
        weight = torch.cat([weight[keep], loop[: partition.num_inner]])
        degree = partition.in_weight + loop
    else:
        degree = partition.in_weight + partition.loop_weight_total
    scale = degree.pow(-0.5)
    scale.masked_fill_(torch.isinf(scale), 0.0)
    return edge_index, scale[edge_index[0]] * weight * scale[edge_index[1]]
