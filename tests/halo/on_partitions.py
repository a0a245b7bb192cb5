"""Run a function on every rank of a partitioned graph, in threads, and watch what ranks send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from torch import Tensor

from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
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


class WatchedCommunicator:
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
        self.inner = inner
        self.rank, self.size = inner.rank, inner.size
        self.sent, self.received = sent, received

    def allreduce(self, tensor: Tensor, *, name: str) -> Handle:
        return self.inner.allreduce(tensor, name=name)

    def allgather(self, tensor: Tensor, *, name: str) -> Handle:
        return self.inner.allgather(tensor, name=name)

    def alltoall(
        self, tensor: Tensor, send_splits: Sequence[int], recv_splits: Sequence[int], *, name: str
    ) -> Handle:
        assert send_splits[self.rank] == recv_splits[self.rank] == 0  # all of it leaves this rank
        self.sent(name, tensor)
        return _WatchedHandle(
            self, self.inner.alltoall(tensor, send_splits, recv_splits, name=name)
        )


class _WatchedHandle:
    def __init__(self, owner: WatchedCommunicator, inner: Handle) -> None:
        self._owner, self._inner = owner, inner
        self.name = inner.name

    def poll(self) -> bool:
        return self._inner.poll()

    def wait(self) -> Tensor:
        rows = self._inner.wait()
        self._owner.received(self.name, rows)
        return rows
