"""Weight sums of every node on the whole graph.

Here: what a rank cannot compute for its halo nodes, because their edges lie elsewhere: weighted
in-degrees and self-loops. Not here: normalising with them (gcn_norm.py).

Shape letters: N nodes, E stored edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .graph import Array, Graph

# Edges are summed in pieces: numpy's bincount makes 8-byte copies of both of its inputs.
_CHUNK_EDGES = 1 << 21


@dataclass(frozen=True, eq=False)
class NodeWeights:
    """Sums over the messages into each node; in an unweighted graph every message weighs 1.

    Attributes:
        into: Sum over the messages from other nodes. [N], float32
        loop: Weight of the node's last self-loop, NaN where it has none. [N], float32
        loop_total: Sum over the node's self-loops. [N], float32
    """

    into: Array
    loop: Array
    loop_total: Array


def sum_node_weights(graph: Graph) -> NodeWeights:
    """Sum in float64, in the order of the edges, and round once.

    Args:
        graph: The whole graph.

    Returns:
        The sums.
    """
    source, target = graph.edge_index
    into = np.zeros(graph.num_nodes, dtype=np.float64)
    loop_total = np.zeros(graph.num_nodes, dtype=np.float64)
    loop = np.full(graph.num_nodes, np.nan, dtype=np.float32)
    for start in range(0, source.size, _CHUNK_EDGES):
        part = slice(start, start + _CHUNK_EDGES)
        is_loop = source[part] == target[part]
        weight = None if graph.edge_weight is None else graph.edge_weight[part]
        for ends in (target, source) if graph.mirror else (target,):
            into += _sums(ends[part], weight, ~is_loop, graph.num_nodes)
        if is_loop.any():
            loop_total += _sums(target[part], weight, is_loop, graph.num_nodes)
            # Of several loops the last one wins, as in PyG's add_remaining_self_loops.
            loop[target[part][is_loop]] = 1.0 if weight is None else weight[is_loop]
    return NodeWeights(into.astype(np.float32), loop, loop_total.astype(np.float32))


def _sums(ends: Array, weight: Array | None, chosen: Array, num_nodes: int) -> Array:
    kept = None if weight is None else weight[chosen]
    return np.bincount(ends[chosen], weights=kept, minlength=num_nodes)
