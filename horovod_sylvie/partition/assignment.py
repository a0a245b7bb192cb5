"""Choosing the owner of every node: METIS with both objectives, random, contiguous.

Here: `assign`, and the cost model that picks between METIS's objectives. Not here: calling METIS
(metis.py), what follows from the owners (owned_edges.py, partitioner.py).

Shape letters: N nodes, E stored edges, P ranks.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from .graph import Array, Graph
from .metis import MetisResult, import_pymetis, metis_owners
from .owned_edges import OwnedEdges, PartCounts

METHODS = ("metis", "random", "contiguous")
MAX_PARTS = 2**16
# METIS is meant for parts of many nodes. Below this it prints complaints on stdout and leaves parts
# empty, while a contiguous assignment is as good as any.
_METIS_MIN_NODES_PER_PART = 2

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CostModel:
    """Predicted seconds of one layer of one epoch, forward and backward, on the slowest rank.

    seconds = max over ranks (edges * s_per_edge + inner * s_per_node)
            + max over ranks (max(rows sent, rows received)) * s_per_row

    Only the ratios matter, since the model ranks assignments of one graph. The defaults are round
    figures for 256 features on one CPU core per rank: an edge moves a row of 1 KiB twice at 10
    GB/s, a node is three 256 x 256 products at 100 GFLOP/s, a row is packed, sent and unpacked at
    one bit, twice.

    Attributes:
        s_per_edge: Seconds to aggregate one message. Larger: edge balance counts for more.
        s_per_node: Seconds of dense work per inner node. Larger: node balance counts for more.
        s_per_row: Seconds per exchanged row. Larger: fewer halo nodes count for more.
    """

    s_per_edge: float = 2e-7
    s_per_node: float = 4e-6
    s_per_row: float = 1e-6

    def predict_s(self, counts: PartCounts) -> float:
        """Return the predicted seconds for the given counts."""
        compute = counts.num_edges * self.s_per_edge + counts.num_inner * self.s_per_node
        rows = np.maximum(counts.num_halo, counts.num_boundary_rows)
        return float(compute.max(initial=0.0) + rows.max(initial=0) * self.s_per_row)


@dataclass(frozen=True, eq=False)
class Assignment:
    """Who owns which node, and how that was decided.

    Attributes:
        owners: The partition book. [N], int32 in [0, P)
        method: The method asked for.
        objective: What decided: "cut" or "vol" for METIS, else the name of the rule.
        predicted_s: Predicted seconds per layer and epoch of each candidate.
        counts: Counts of the chosen assignment.
        edge_share: Share of the edges that METIS saw, 1 unless memory was short.
    """

    owners: Array
    method: str
    objective: str
    predicted_s: dict[str, float]
    counts: PartCounts
    edge_share: float


def assign(
    graph: Graph,
    num_parts: int,
    *,
    method: str = "metis",
    seed: int = 0,
    cost_model: CostModel | None = None,
    metis_bytes: int | None = None,
    progress: bool = False,
) -> Assignment:
    """Choose an owner for every node.

    "metis" partitions the symmetrised simple graph twice, once per METIS objective (edge cut, total
    communication volume), with one composite weight per node, 1 + its in-degree, so that edges are
    balanced first; the candidate with the smaller predicted time is kept ("cut" on a tie).

    Args:
        graph: The whole graph.
        num_parts: P, at least 1. More parts than nodes leaves parts empty, which is allowed.
        method: "metis", "random" (parts of equal size) or "contiguous" (equal ranges of ids).
        seed: Seed of METIS or of the random order, at least 0. Unused by "contiguous", which has no
            chance in it.
        cost_model: Constants of the prediction; None for the defaults of `CostModel`.
        metis_bytes: About how much memory METIS may take; a graph that needs more is thinned.
            None for three times the graph's bytes, at least 64 MiB. Unused by other methods.
        progress: Whether to draw a progress bar on stderr.

    Returns:
        The assignment. Equal arguments give equal owners.

    Raises:
        ValueError: `num_parts`, `method` or `seed` is not allowed, or the graph is too large for
            the installed METIS.
        ImportError: pymetis is missing and `method` is "metis".
    """
    check_arguments(num_parts, method, seed)
    if method == "metis" and _suits_metis(graph, num_parts):
        found = metis_owners(
            graph, num_parts, seed=seed, memory_bytes=metis_bytes, progress=progress
        )
    else:
        found = MetisResult(_by_rule(graph.num_nodes, num_parts, method, seed), 1.0)
    candidates = found.owners
    model = cost_model or CostModel()
    counts = {
        name: OwnedEdges(graph, owners, num_parts).counts() for name, owners in candidates.items()
    }
    predicted_s = {name: model.predict_s(count) for name, count in counts.items()}
    best = min(candidates, key=lambda name: predicted_s[name])
    _logger.info("assignment %s: predicted seconds per layer and epoch %s", best, predicted_s)
    return Assignment(candidates[best], method, best, predicted_s, counts[best], found.edge_share)


def check_arguments(num_parts: int, method: str, seed: int) -> None:
    """Check what `assign` would refuse, before a graph is read.

    Args:
        num_parts: As for `assign`.
        method: As for `assign`.
        seed: As for `assign`.

    Raises:
        TypeError: `num_parts` is no integer.
        ValueError: An argument is not allowed.
    """
    if isinstance(num_parts, bool) or not isinstance(num_parts, (int, np.integer)):
        raise TypeError(f"assign: expected an integer for 'num_parts', got {num_parts!r}.")
    if not 1 <= num_parts <= MAX_PARTS:
        raise ValueError(f"assign: expected 1 to {MAX_PARTS} for 'num_parts', got {num_parts}.")
    if method not in METHODS:
        raise ValueError(
            f"assign: expected one of {', '.join(METHODS)} for 'method', got {method!r}."
        )
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**31:
        raise ValueError(f"assign: expected an integer in [0, 2**31) for 'seed', got {seed!r}.")


def _suits_metis(graph: Graph, num_parts: int) -> bool:
    """Return whether there is something to partition; say so if not."""
    import_pymetis()
    num_edges = graph.edge_index.shape[1]
    enough = graph.num_nodes >= _METIS_MIN_NODES_PER_PART * num_parts
    if enough and num_parts > 1 and num_edges > 0:
        return True
    _logger.info(
        "nothing for METIS to do with %d nodes, %d edges and %d parts: equal ranges of ids",
        graph.num_nodes,
        num_edges,
        num_parts,
    )
    return False


def _by_rule(num_nodes: int, num_parts: int, method: str, seed: int) -> dict[str, Array]:
    """Return the one assignment of a rule, by the rule's name."""
    ids = np.arange(num_nodes, dtype=np.int64)
    owners = (ids * num_parts // max(num_nodes, 1)).astype(np.int32)
    if method == "random":
        return {"random": np.random.default_rng(seed).permutation(owners)}
    return {"contiguous": owners}
