"""A graph that most partitions cut in few places, and its partitions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from horovod_sylvie.halo.subgraphs import SplitGraph
from horovod_sylvie.partition.graph import Graph
from horovod_sylvie.partition.loader import load_partition
from horovod_sylvie.partition.local_partition import Partition
from horovod_sylvie.partition.partitioner import partition_graph
from tests.halo.test_every_convolution import E, F


def make_graph() -> Graph:
    """Make a ring with few edges across, a node that reads none, and one that reads itself."""
    rng = np.random.default_rng(0)
    num_nodes = 48
    nodes = np.arange(1, num_nodes - 1)
    ring = [np.stack([nodes - step, nodes]) for step in (1, 2)]
    ring[1] = ring[1][:, ::3]
    across = rng.integers(1, num_nodes - 1, (2, 6))
    edges = np.concatenate([*ring, across, [[num_nodes - 1], [num_nodes - 1]]], axis=1)
    edges %= num_nodes
    num_edges = edges.shape[1]
    return Graph(
        num_nodes=num_nodes,
        edge_index=edges,
        x=rng.standard_normal((num_nodes, F)).astype(np.float32),
        y=rng.integers(0, 3, num_nodes),
        train_mask=np.ones(num_nodes, bool),
        val_mask=np.zeros(num_nodes, bool),
        test_mask=np.zeros(num_nodes, bool),
        edge_weight=rng.uniform(0.1, 1, num_edges).astype(np.float32),
        edge_attr=rng.standard_normal((num_edges, E)).astype(np.float32),
        mirror=False,
    )


GRAPH = make_graph()
CASES = [("metis", 2), ("random", 2), ("metis", 3), ("random", 4), ("metis", 4), ("metis", 1)]


def write_partitions(folder: Path) -> Path:
    """Write partitionings by method and number of ranks, and one with a rank without rows."""
    for method, size in CASES:
        partition_graph(GRAPH, folder / f"{method}-{size}", size, method=method)
    with pytest.MonkeyPatch.context() as patch:
        owners = np.repeat(np.array([0, 2], dtype=np.int32), GRAPH.num_nodes // 2)
        patch.setattr(
            "horovod_sylvie.partition.assignment._by_rule", lambda *_: {"contiguous": owners}
        )
        partition_graph(GRAPH, folder / "gap-3", 3, method="contiguous")
    return folder


def watch_joins(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets an entry for each call of a layer that was split."""
    calls: list[int] = []
    join = SplitGraph.join

    def counted(self: SplitGraph, interior: Tensor, marginal: Tensor) -> Tensor:
        calls.append(len(self.order))
        return join(self, interior, marginal)

    monkeypatch.setattr(SplitGraph, "join", counted)
    return calls


def on_ranks(
    folder: Path, size: int, body: Callable[[LoopbackCommunicator, Partition], None]
) -> None:
    # read here: Python 3.11's parser, which numpy reads headers with, is not made for threads
    parts = [load_partition(folder, rank, size) for rank in range(size)]
    run_loopback(size, lambda comm: body(comm, parts[comm.rank]))
