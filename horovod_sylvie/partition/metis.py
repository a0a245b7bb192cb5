"""METIS: the graph it is given, the memory it needs, and the call.

Here: `metis_owners`. This is the only module that imports pymetis. Not here: choosing among its
results (assignment.py).

METIS: Karypis and Kumar, "A fast and high quality multilevel scheme for partitioning irregular
graphs", SIAM J. Sci. Comput. 20(1), 1998.

[Note: Edges that METIS sees]
METIS with 64-bit indices, which pymetis ships, and the adjacency that it is given need about 133
bytes per adjacent pair on graphs that coarsen slowly: several times the edges, and often more than
all features. So that the whole run stays within a few times its input, a graph that would need more
than that and more than 64 MiB is thinned first: edge (u, v) is kept with probability min(1, c *
(1/degree(u) + 1/degree(v))), an estimate of its effective resistance (Spielman and Srivastava,
"Graph sparsification by effective resistances", STOC 2008), while node weights and all counts still
come from the whole graph. On a block model of a million nodes of degree 20 in 4 parts, 38 % of the
edges gave 0.8 % more halo nodes in a third of the time (6 % more when all edges had the same
probability); with 200,000 nodes of degree 100 in 8 parts, 10 % gave 0.5 % more; with 100,000 nodes
of degree 20 in 4 parts, 30 % gave 3 % more. Thinning never goes below a mean degree of 6.

Shape letters: N nodes, E stored edges, P ranks.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import scipy.sparse as sp
from tqdm import tqdm

from .graph import Array, Graph

OBJECTIVES = ("cut", "vol")
# Measured with pymetis 2025.2, see the note above; ours and METIS's together.
_BYTES_PER_PAIR = 133
_BYTES_PER_NODE = 80
# Three times an input of 21 MiB; a smaller graph gets as much, for the sake of its halo.
_MIN_LIMIT_BYTES = 64 << 20
_MIN_DEGREE = 6
_CLIP_STEPS = 10
# Counted in pieces: numpy's bincount makes an 8-byte copy of its input.
_CHUNK_EDGES = 1 << 21
# The graph itself is one; see "peak memory" in docs/partition.md.
_LIMIT_PER_INPUT_BYTE = 3

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class MetisResult:
    """The partition book that METIS found for each objective.

    Attributes:
        owners: By objective, [N], int32 in [0, P).
        edge_share: Share of the edges that METIS saw, 1 unless memory was short.
    """

    owners: dict[str, Array]
    edge_share: float


def metis_owners(
    graph: Graph,
    num_parts: int,
    *,
    seed: int,
    memory_bytes: int | None = None,
    progress: bool = False,
) -> MetisResult:
    """Partition the symmetrised simple graph once per objective.

    Args:
        graph: The whole graph, with at least two nodes per part and at least one edge.
        num_parts: P, at least 2.
        seed: Seed of METIS and of the thinning.
        memory_bytes: About how much memory METIS may take; None for three times the graph's bytes,
            at least 64 MiB. See [Note: Edges that METIS sees].
        progress: Whether to draw a progress bar on stderr.

    Returns:
        One book per objective. Equal arguments give equal books.

    Raises:
        ImportError: pymetis is not installed.
        ValueError: The graph is too large for the index type of the installed METIS.
    """
    pymetis = import_pymetis()
    index_type = pymetis.zero_copy_dtype()
    # Messages into each node; a loop of a mirrored graph is counted twice, which harms nothing.
    weights = 1 + _end_counts(graph, both=graph.mirror)
    adjacency = metis_adjacency(graph.edge_index, graph.num_nodes)
    edge_share = _edge_share(graph, adjacency.nnz, memory_bytes)
    if edge_share < 1:
        adjacency = _thin(adjacency, edge_share, seed)
    _check_limits(index_type, adjacency.nnz, int(weights.sum()))
    csr = pymetis.CSRAdjacency(
        adjacency.indptr.astype(index_type), adjacency.indices.astype(index_type)
    )
    # METIS is about to need several times as much: ours goes first.
    del adjacency
    weights = weights.astype(index_type)
    owners = {}
    for objective in tqdm(OBJECTIVES, desc="METIS", unit="objective", disable=not progress):
        options = pymetis.Options()
        options.objtype = OBJECTIVES.index(objective)
        # glibc takes seed 0 for seed 1.
        options.seed = int(seed) + 1
        # recursive=False: the recursive algorithm, the default up to 8 parts, refuses "vol".
        found = pymetis.part_graph(
            num_parts, csr, vweights=weights, recursive=False, options=options
        )
        owners[objective] = np.asarray(found.vertex_part, dtype=np.int32)
    return MetisResult(owners, edge_share)


def metis_adjacency(edge_index: Array, num_nodes: int) -> sp.csr_array:
    """Return the graph that METIS wants: symmetric, no loops, no duplicates.

    Args:
        edge_index: Any edges; direction, loops and multiplicity are dropped. [2, E], int32
        num_nodes: N.

    Returns:
        Adjacency in CSR form; the values mean nothing. [N, N], int8
    """
    source, target = edge_index
    if bool((source == target).any()):
        keep = source != target
        source, target = source[keep], target[keep]
    ones = np.ones(source.size, dtype=np.int8)
    half = sp.coo_array((ones, (source, target)), shape=(num_nodes, num_nodes)).tocsr()
    # Back to one: a sum of duplicates that wrapped to zero would be dropped as "no edge".
    half.data[:] = 1
    return half.maximum(half.T.tocsr())


def import_pymetis() -> ModuleType:
    """Import pymetis.

    Returns:
        The module.

    Raises:
        ImportError: It is not installed; the message says how to install it.
    """
    try:
        import pymetis
    except ImportError as error:
        raise ImportError(
            "assign: expected pymetis for method='metis', but it is not installed. Run "
            "`pip install pymetis`, or use method='random' or 'contiguous'."
        ) from error
    module: ModuleType = pymetis
    return module


def _edge_share(graph: Graph, num_pairs: int, memory_bytes: int | None) -> float:
    """Return the share of the edges to show to METIS. See [Note: Edges that METIS sees]."""
    if memory_bytes is None:
        memory_bytes = max(_MIN_LIMIT_BYTES, _LIMIT_PER_INPUT_BYTE * graph.nbytes)
    fitting = (memory_bytes - _BYTES_PER_NODE * graph.num_nodes) / _BYTES_PER_PAIR
    wanted = max(fitting, float(_MIN_DEGREE * graph.num_nodes))
    if wanted >= num_pairs:
        return 1.0
    _logger.info("METIS sees %.0f %% of the edges, to stay within memory", 100 * wanted / num_pairs)
    return wanted / num_pairs


def _thin(adjacency: sp.csr_array, share: float, seed: int) -> sp.csr_array:
    """Return the adjacency with about `share` of its edges, both directions of an edge together."""
    degree = np.diff(adjacency.indptr)
    source = np.repeat(np.arange(degree.size, dtype=np.int32), degree)
    upper = source < adjacency.indices
    source, target = source[upper], adjacency.indices[upper]
    inverse = (1.0 / np.maximum(degree, 1)).astype(np.float32)
    chance = inverse[source]
    chance += inverse[target]
    wanted = share * source.size
    # Clipping at 1 takes from the expected number, so that c grows in a few steps to its value.
    for _ in range(_CLIP_STEPS):
        chance *= np.float32(wanted / np.minimum(chance, 1).sum(dtype=np.float64))
    kept = np.random.default_rng(seed).random(source.size, dtype=np.float32) < chance
    return metis_adjacency(np.stack([source[kept], target[kept]]), degree.size)


def _check_limits(index_type: np.dtype[np.integer], num_pairs: int, total_weight: int) -> None:
    limit = int(np.iinfo(index_type).max)
    for what, value in (("adjacent pairs", num_pairs), ("total node weight", total_weight)):
        if value > limit:
            raise ValueError(
                f"assign: expected at most {limit} {what} for METIS, whose index type here is "
                f"{index_type}, got {value}. Use method='random' or 'contiguous', or a METIS with "
                "64-bit indices."
            )


def _end_counts(graph: Graph, *, both: bool) -> Array:
    """Count the stored edges at each node: those that end there, or start there too. [N], int64."""
    counts = np.zeros(graph.num_nodes, dtype=np.int64)
    for ends in graph.edge_index if both else graph.edge_index[1:]:
        for start in range(0, ends.size, _CHUNK_EDGES):
            counts += np.bincount(ends[start : start + _CHUNK_EDGES], minlength=graph.num_nodes)
    return counts
