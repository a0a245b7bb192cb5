"""Graphs with every peculiarity, and the definitions that a partitioning must agree with.

Feature rows name their node and column (100 * node + column), so that a wrong row says where it
came from.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from horovod_sylvie.partition.graph import Graph
from horovod_sylvie.partition.loader import load_partition
from horovod_sylvie.partition.local_partition import Partition


def build_graph(
    num_nodes: int = 12,
    num_edges: int = 40,
    *,
    seed: int = 0,
    mirror: bool = False,
    weighted: bool = False,
    attributed: bool = False,
    sparse: bool = False,
    multilabel: bool = False,
    num_splits: int = 0,
) -> Graph:
    """Draw a graph with loops, duplicates and isolated nodes (the last two nodes have no edge)."""
    rng = np.random.default_rng(seed)
    connected = max(1, num_nodes - 2)
    edges = rng.integers(0, connected, size=(2, num_edges if num_nodes else 0))
    if edges.shape[1] >= 4:
        edges[:, 1] = edges[:, 0]  # a duplicate
        edges[:, 2] = edges[0, 2]  # a loop
        edges[:, 3] = edges[0, 2]  # the same loop again
    x = 100.0 * np.arange(num_nodes)[:, np.newaxis] + np.arange(5)
    if sparse:
        x = sp.csr_array(x * (rng.random(x.shape) < 0.4))
    shape = (num_nodes, num_splits) if num_splits else (num_nodes,)
    role = rng.integers(0, 4, size=shape)
    labels = rng.integers(-1, 3, size=num_nodes)
    if multilabel:
        labels = rng.integers(0, 2, size=(num_nodes, 4)).astype(np.uint8)
    num_stored = edges.shape[1]
    return Graph(
        num_nodes=num_nodes,
        edge_index=edges,
        x=x,
        y=labels,
        train_mask=role == 0,
        val_mask=role == 1,
        test_mask=role == 2,
        edge_weight=rng.normal(size=num_stored) if weighted else None,
        edge_attr=rng.normal(size=(num_stored, 2)) if attributed else None,
        mirror=mirror,
        name="drawn graph",
    )


def load_all(directory: Path, num_parts: int, *, split: int = 0) -> list[Partition]:
    """Load the pieces of all ranks."""
    return [load_partition(directory, rank, num_parts, split=split) for rank in range(num_parts)]


def check_identities(graph: Graph, parts: list[Partition], split: int = 0) -> None:
    """Assert everything that defines a partitioning of `graph`."""
    owner = check_ownership(graph, parts)
    check_edges(graph, parts, owner)
    check_halos(parts, owner)
    check_nodes(graph, parts, split)
    check_weights(graph, parts)


def check_ownership(graph: Graph, parts: list[Partition]) -> np.ndarray:
    """Assert that every node is inner to exactly one rank; return the owners."""
    owner = np.full(graph.num_nodes, -1)
    for part in parts:
        ids = part.inner_ids.numpy()
        assert (owner[ids] == -1).all()
        assert (np.diff(ids) > 0).all()
        owner[ids] = part.rank
    assert (owner >= 0).all()
    assert len({part.digest for part in parts}) == 1
    return owner


def check_edges(graph: Graph, parts: list[Partition], owner: np.ndarray) -> None:
    """Assert that a rank holds the messages into its nodes, in the order of the whole graph."""
    edges, origin = graph.message_edges()
    for part in parts:
        mine = owner[edges[1]] == part.rank
        ids = np.concatenate([part.inner_ids.numpy(), part.halo_ids.numpy()])
        np.testing.assert_array_equal(ids[part.edge_index.numpy()], edges[:, mine])
        for name in ("edge_weight", "edge_attr"):
            whole, local = getattr(graph, name), getattr(part, name)
            assert (whole is None) == (local is None)
            if whole is not None:
                np.testing.assert_array_equal(local.numpy(), whole[origin[mine]])
    assert sum(part.edge_index.shape[1] for part in parts) == edges.shape[1]


def check_halos(parts: list[Partition], owner: np.ndarray) -> None:
    """Assert that halos are what is read from others, and that senders agree with receivers."""
    for part in parts:
        ids = np.concatenate([part.inner_ids.numpy(), part.halo_ids.numpy()])
        read = {int(i) for i in ids[part.edge_index[0].numpy()] if owner[i] != part.rank}
        wanted = sorted(read, key=lambda node: (owner[node], node))
        assert part.halo_ids.tolist() == wanted
        counts = [sum(1 for node in wanted if owner[node] == rank) for rank in range(len(parts))]
        assert list(part.recv_splits) == counts
    for sender in parts:
        sent = sender.inner_ids[sender.send_index].split(list(sender.send_splits))
        for receiver in parts:
            received = receiver.halo_ids.split(list(receiver.recv_splits))[sender.rank]
            assert sent[receiver.rank].tolist() == received.tolist()


def check_nodes(graph: Graph, parts: list[Partition], split: int) -> None:
    """Assert that features, labels and masks come back bitwise."""
    x, labelled = graph.dense_features(), graph.multilabel or graph.y >= 0
    for part in parts:
        ids = part.inner_ids.numpy()
        np.testing.assert_array_equal(part.x.numpy(), x[ids])
        np.testing.assert_array_equal(part.y.numpy(), graph.y[ids])
        assert (part.num_nodes_global, part.num_classes) == (graph.num_nodes, graph.num_classes)
    for name in ("train", "val", "test"):
        mask = getattr(graph, f"{name}_mask")
        column = mask[:, split if mask.shape[1] > 1 else 0] & labelled
        for part in parts:
            local = getattr(part, f"{name}_mask").numpy()
            np.testing.assert_array_equal(local, column[part.inner_ids.numpy()])
            assert getattr(part, f"num_{name}_global") == column.sum()


def check_weights(graph: Graph, parts: list[Partition]) -> None:
    """Assert the weight sums against loops over the whole message list."""
    edges, origin = graph.message_edges()
    weight = np.ones(edges.shape[1], np.float32)
    if graph.edge_weight is not None:
        weight = graph.edge_weight[origin]
    into, total = np.zeros(graph.num_nodes), np.zeros(graph.num_nodes)
    last = np.full(graph.num_nodes, np.nan, np.float32)
    for source, target, value in zip(*edges, weight, strict=True):
        if source == target:
            last[target] = value
            total[target] += value
        else:
            into[target] += value
    for part in parts:
        ids = np.concatenate([part.inner_ids.numpy(), part.halo_ids.numpy()])
        np.testing.assert_allclose(part.in_weight.numpy(), into[ids], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(part.loop_weight_total.numpy(), total[ids], rtol=1e-6)
        np.testing.assert_array_equal(part.loop_weight.numpy(), last[ids])
