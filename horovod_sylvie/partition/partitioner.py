"""Cutting a graph into one piece per rank and writing the pieces.

Here: `partition_graph` and the making of a rank's arrays. Not here: choosing the owners
(assignment.py), files (writer.py), reading a piece back (loader.py).

Shape letters: N nodes, E messages, P ranks, I inner, H halo, B boundary rows.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from .assignment import Assignment, CostModel, assign, check_arguments
from .graph import Array, Graph, feature_arrays
from .graph_readers import read_graph
from .node_weights import sum_node_weights
from .owned_edges import OwnedEdges, PartCounts
from .process_memory import peak_bytes, resident_bytes
from .report import PartitionReport, rank_reports
from .writer import PartitionWriter, check_replaceable

if TYPE_CHECKING:
    from torch_geometric.data import Data


def partition_graph(
    source: Graph | Data | str | os.PathLike[str],
    directory: str | os.PathLike[str],
    num_parts: int,
    *,
    root: str | os.PathLike[str] | None = None,
    target: str | None = None,
    method: str = "metis",
    seed: int = 0,
    cost_model: CostModel | None = None,
    metis_bytes: int | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> PartitionReport:
    """Partition a graph and write one directory per rank, atomically.

    Args:
        source: A `Graph`, a PyG `Data`, or what `read_graph` takes: a .npz or .pt file, the name of
            a PyG or OGB dataset, or "synthetic:...".
        directory: Where to write. It must not exist yet, be empty, or hold a partitioning and
            `overwrite` be set.
        num_parts: How many ranks will train, P.
        root: Where datasets that are given by name are kept; they are downloaded there if missing.
        target: "y" or "y_multi", for a .npz file that holds both; None takes `y` where there is
            one.
        method: "metis", "random" or "contiguous".
        seed: Seed of the partitioner.
        cost_model: How METIS's two candidates are compared; None for the defaults.
        metis_bytes: About how much memory METIS may take, see `assign`; None for what keeps the
            whole run within about four times the graph.
        overwrite: Whether to replace a partitioning that is at `directory`, once the new one is
            whole.
        progress: Whether to draw progress bars on stderr.

    Returns:
        The report.

    Raises:
        ValueError: An argument or the graph is not allowed.
        TypeError: `source` is none of the above.
        ImportError: What the source or the method needs is not installed.
        RuntimeError: A file or dataset cannot be read.
        OSError: The directory cannot be written to.

    Note:
        Nothing is left at `directory` unless all of it is written. Not a collective: one process
        runs it.
    """
    start = _Start(time.perf_counter(), resident_bytes())
    path = Path(directory)
    # Refused before the minutes of reading and partitioning, and again when all is written.
    check_arguments(num_parts, method, seed)
    check_replaceable(path, overwrite=overwrite)
    with tqdm(total=1, desc="reading", unit="graph", disable=not progress) as bar:
        graph = (
            source if isinstance(source, Graph) else read_graph(source, root=root, target=target)
        )
        bar.update()
    assignment = assign(
        graph,
        num_parts,
        method=method,
        seed=seed,
        cost_model=cost_model,
        metis_bytes=metis_bytes,
        progress=progress,
    )
    pieces = _Pieces(graph, assignment, num_parts)
    with contextlib.closing(PartitionWriter(path, overwrite=overwrite)) as writer:
        num_train = []
        for rank in tqdm(range(num_parts), desc="writing", unit="rank", disable=not progress):
            counts, arrays = pieces.of(rank)
            writer.write_rank(counts, arrays)
            num_train.append(int(arrays["train_mask"][:, 0].sum()))
        header = writer.seal(pieces.facts(), writer.write_book(assignment.owners))
        report = PartitionReport(
            directory=str(path),
            digest=header["digest"],
            ranks=rank_reports(assignment.counts, num_train),
            **pieces.figures(),
            **start.figures(),
        )
        writer.finish(header, report.to_json())
    return report


@dataclass(frozen=True)
class _Start:
    """When a run started, and the memory that the process held then."""

    seconds: float
    resident_bytes: int

    def figures(self) -> dict[str, Any]:
        """Return what the run has cost so far, for the report."""
        return {
            "peak_bytes": max(0, peak_bytes() - self.resident_bytes),
            "seconds": time.perf_counter() - self.seconds,
        }


class _Pieces:
    """Makes the arrays of one rank after the other."""

    def __init__(self, graph: Graph, assignment: Assignment, num_parts: int) -> None:
        self._graph = graph
        self._assignment = assignment
        self._counts: PartCounts = assignment.counts
        self._edges = OwnedEdges(graph, assignment.owners, num_parts)
        # All halo lists together are no longer than the message list, and every rank's send list is
        # made of slices of them, in the receivers' order by construction.
        self._halos = [self._edges.halo_of(r, self._edges.into(r)[0]) for r in range(num_parts)]
        self._starts = np.cumsum(self._counts.halo, axis=1) - self._counts.halo
        self._row = np.empty(graph.num_nodes, dtype=np.int32)
        self._weights = sum_node_weights(graph)
        self._labelled = np.ones(graph.num_nodes, np.bool_) if graph.multilabel else graph.y >= 0
        dropped = np.zeros(graph.num_nodes, dtype=np.bool_)
        for mask in (graph.train_mask, graph.val_mask, graph.test_mask):
            dropped |= mask.any(axis=1) & ~self._labelled
        self._num_unlabelled_dropped = int(dropped.sum())

    def facts(self) -> dict[str, Any]:
        """Return what every rank knows of the whole graph."""
        graph = self._graph
        facts: dict[str, Any] = {
            "num_nodes": graph.num_nodes,
            "num_classes": graph.num_classes,
            "num_features": graph.num_features,
            "multilabel": graph.multilabel,
        }
        for name in ("train", "val", "test"):
            mask = getattr(graph, f"{name}_mask")
            sums = (mask & self._labelled[:, np.newaxis]).sum(axis=0)
            facts[f"num_{name}"] = [int(s) for s in np.broadcast_to(sums, (graph.num_splits,))]
        return facts

    def figures(self) -> dict[str, Any]:
        """Return what the report says of the graph and of the assignment."""
        return {
            "source": self._graph.name,
            "method": self._assignment.method,
            "objective": self._assignment.objective,
            "predicted_s": self._assignment.predicted_s,
            "edge_share": self._assignment.edge_share,
            "num_nodes": self._graph.num_nodes,
            "num_edges": int(self._counts.num_edges.sum()),
            "num_cut_edges": self._counts.num_cut_edges,
            "num_unlabelled_dropped": self._num_unlabelled_dropped,
            "input_bytes": self._graph.nbytes,
        }

    def of(self, rank: int) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the counts and the arrays of `rank`."""
        graph, halo = self._graph, self._halos[rank]
        inner = np.flatnonzero(self._edges.owners == rank).astype(np.int32)
        rows = np.concatenate([inner, halo])
        sources, targets, origin = self._edges.into(rank)
        self._row[rows] = np.arange(rows.size, dtype=np.int32)
        arrays = {
            "inner_ids": inner,
            "halo_ids": halo,
            "send_index": self._send_index(rank),
            "edge_index": np.stack([self._row[sources], self._row[targets]]),
            **_edge_arrays(graph, origin),
            "in_weight": self._weights.into[rows],
            "loop_weight": self._weights.loop[rows],
            "loop_weight_total": self._weights.loop_total[rows],
            **feature_arrays(graph.x[inner]),
            "y": graph.y[inner],
        }
        for name in ("train_mask", "val_mask", "test_mask"):
            arrays[name] = getattr(graph, name)[inner] & self._labelled[inner, np.newaxis]
        counts = {
            "num_inner": int(inner.size),
            "num_halo": int(halo.size),
            "num_edges": int(sources.size),
            "num_boundary_rows": int(arrays["send_index"].size),
            "recv_splits": self._counts.halo[rank].tolist(),
            "send_splits": self._counts.halo[:, rank].tolist(),
        }
        return counts, arrays

    def _send_index(self, rank: int) -> Array:
        """Return the rows to send, by receiver. Needs this rank's rows in `_row`. [B], int32."""
        lists = []
        for receiver, halo in enumerate(self._halos):
            start = self._starts[receiver, rank]
            lists.append(halo[start : start + self._counts.halo[receiver, rank]])
        send_index: Array = self._row[np.concatenate(lists)]
        return send_index


def _edge_arrays(graph: Graph, origin: Array) -> dict[str, Array]:
    arrays = {}
    if graph.edge_weight is not None:
        arrays["edge_weight"] = graph.edge_weight[origin]
    if graph.edge_attr is not None:
        arrays["edge_attr"] = graph.edge_attr[origin]
    return arrays
