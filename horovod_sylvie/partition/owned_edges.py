"""The edges of a graph seen rank by rank, given who owns each node.

Here: which messages a rank computes, which halo nodes it reads, and the counts that cost models and
reports are made of. Not here: choosing the owners (assignment.py), local ids (partitioner.py).

Every method looks at all edges for one rank and holds only that rank's share, so that the P pieces
are never in memory together.

Shape letters: N nodes, E stored edges, P ranks, I inner, H halo.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .graph import Array, Graph


@dataclass(frozen=True, eq=False)
class PartCounts:
    """How the work and the traffic spread over the ranks.

    Attributes:
        num_inner: Inner nodes of each rank. [P], int64
        num_edges: Messages that each rank computes. [P], int64
        halo: Row p, column q: halo nodes of rank p that rank q owns. [P, P], int64
        num_cut_edges: Messages whose source and target have different owners.
    """

    num_inner: Array
    num_edges: Array
    halo: Array
    num_cut_edges: int

    @property
    def num_halo(self) -> Array:
        """Halo nodes of each rank. [P], int64."""
        return np.asarray(self.halo.sum(axis=1))

    @property
    def num_boundary_rows(self) -> Array:
        """Rows that each rank sends per exchange, one per row and receiver. [P], int64."""
        return np.asarray(self.halo.sum(axis=0))


class OwnedEdges:
    """The messages of a graph, grouped by the rank that owns their target.

    Invariant: each message belongs to exactly one rank, and a rank's messages keep the order of
    `Graph.message_edges`, so that sums over neighbours run in the order of the whole graph.
    """

    def __init__(self, graph: Graph, owners: Array, num_parts: int) -> None:
        """Look up the owners of both ends of every stored edge.

        Args:
            graph: The whole graph.
            owners: The partition book: owner of each node. [N], integer in [0, num_parts)
            num_parts: P, at most 2**16.
        """
        # Two bytes per edge end: the P passes over them are bound by memory.
        narrow = owners.astype(np.uint16)
        self.graph = graph
        self.owners = narrow
        self.num_parts = num_parts
        self._source_owner = narrow[graph.edge_index[0]]
        self._target_owner = narrow[graph.edge_index[1]]

    def into(self, rank: int) -> tuple[Array, Array, Array]:
        """Return the messages whose target `rank` owns, in message order.

        Returns:
            Sources, targets (global ids, int32) and the stored edge of each message (int64).
        """
        source, target = self.graph.edge_index
        forward = np.flatnonzero(self._target_owner == rank)
        if not self.graph.mirror:
            return source[forward], target[forward], forward
        images = np.flatnonzero(self._source_owner == rank)
        images = images[source[images] != target[images]]
        return (
            np.concatenate([source[forward], target[images]]),
            np.concatenate([target[forward], source[images]]),
            np.concatenate([forward, images]),
        )

    def halo_of(self, rank: int, sources: Array) -> Array:
        """Return the halo nodes among the sources that `rank` reads.

        Args:
            rank: The reading rank.
            sources: Sources of the rank's messages, as `into` returns them.

        Returns:
            Global ids by owner, ascending within an owner. [H], int32
        """
        wanted = np.zeros(self.graph.num_nodes, dtype=np.bool_)
        wanted[sources] = True
        wanted &= self.owners != rank
        ids = np.flatnonzero(wanted).astype(np.int32)
        return ids[np.argsort(self.owners[ids], kind="stable")]

    def counts(self) -> PartCounts:
        """Count inner nodes, messages, halo nodes and cut messages of every rank."""
        num_edges = np.zeros(self.num_parts, dtype=np.int64)
        halo = np.zeros((self.num_parts, self.num_parts), dtype=np.int64)
        num_cut_edges = 0
        for rank in range(self.num_parts):
            sources = self.into(rank)[0]
            num_edges[rank] = sources.size
            num_cut_edges += int(np.count_nonzero(self.owners[sources] != rank))
            halo[rank] = self._by_owner(self.halo_of(rank, sources))
        num_inner = np.bincount(self.owners, minlength=self.num_parts).astype(np.int64)
        return PartCounts(num_inner, num_edges, halo, num_cut_edges)

    def _by_owner(self, ids: Array) -> Array:
        return np.bincount(self.owners[ids], minlength=self.num_parts)
