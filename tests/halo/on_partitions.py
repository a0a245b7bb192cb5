"""Run a function on every rank of a partitioned graph, in threads, and watch what ranks send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from torch import Tensor

from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from horovod_sylvie.comm.passing import PassingCommunicator, PassingHandle
from horovod_sylvie.comm.protocol import Handle
from horovod_sylvie.partition.graph import Graph
from horovod_sylvie.partition.local_partition import Partition
from horovod_sylvie.partition.partitioner import partition_graph
from tests.reference_training import load_in_turn

Result = TypeVar("Result")


def run_on_partitions(
    graph: Graph,
    folder: Path,
    size: int,
    body: Callable[[LoopbackCommunicator, Partition], Result],
    *,
    method: str = "random",
) -> list[Result]:
    """Partition a graph, and call `body` with each rank's communicator and partition."""
    directory = folder / f"parts-{method}-{size}"
    partition_graph(graph, directory, size, method=method)
    return run_loopback(size, lambda comm: body(comm, load_in_turn(directory, comm)))


def small_graph(
    edges: Sequence[tuple[int, int]], num_nodes: int, *, num_features: int = 3
) -> Graph:
    """Make a directed graph from a list of edges; the features say the node and the column."""
    nodes, columns = np.arange(num_nodes)[:, None], np.arange(num_features)
    return Graph(
        num_nodes=num_nodes,
        edge_index=np.array(edges).reshape(-1, 2).T,
        x=(10 * nodes + columns).astype(np.float32),
        y=np.arange(num_nodes) % 2,
        train_mask=np.ones(num_nodes, bool),
        val_mask=np.zeros(num_nodes, bool),
        test_mask=np.zeros(num_nodes, bool),
    )


class WatchedCommunicator(PassingCommunicator):
    """Pass everything on, and show each alltoall's rows to a function before and after.

    `sent(name, rows)` sees what is handed over, `received(name, rows)` may change what arrives.
    """

    def __init__(
        self,
        inner: LoopbackCommunicator,
        *,
        sent: Callable[[str, Tensor], None] = lambda name, rows: None,
        received: Callable[[str, Tensor], None] = lambda name, rows: None,
    ) -> None:
        super().__init__(inner)
        self.sent, self.received = sent, received

    def alltoall(
        self, tensor: Tensor, send_splits: Sequence[int], recv_splits: Sequence[int], *, name: str
    ) -> Handle:
        assert send_splits[self.rank] == recv_splits[self.rank] == 0  # all of it leaves this rank
        self.sent(name, tensor)
        return _WatchedHandle(self, super().alltoall(tensor, send_splits, recv_splits, name=name))


class _WatchedHandle(PassingHandle):
    def __init__(self, owner: WatchedCommunicator, inner: Handle) -> None:
        super().__init__(inner)
        self._owner = owner

    def wait(self) -> Tensor:
        rows = super().wait()
        self._owner.received(self.name, rows)
        return rows
