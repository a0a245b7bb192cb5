"""Global normalisation equals PyG's on the whole graph, edge for edge."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm as pyg_gcn_norm

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.codec import FullPrecision
from horovod_sylvie.halo.convert import convert_model
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.halo.gcn_norm import gcn_norm
from horovod_sylvie.partition.graph import Graph
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.on_partitions import run_on_partitions, small_graph
from tests.reference_training import NUM_FEATURES, gather_rows, make_graph


def random_graph(*, directed: bool, weighted: bool, loops: str) -> Graph:
    """Make a graph with isolated nodes, duplicate edges, and loops: none, some, or some twice."""
    graph = make_graph(num_nodes=40, directed=directed, weighted=weighted)
    edges, weight = graph.edge_index, graph.edge_weight
    keep = np.ones(edges.shape[1], bool) if loops != "none" else edges[0] != edges[1]
    origin = np.flatnonzero(keep)
    if loops == "twice":
        origin = np.concatenate([origin, np.flatnonzero(edges[0] == edges[1])])
    if weight is not None:  # a duplicate's weight differs, so that it matters which one counts
        weight = weight[origin] * np.linspace(1, 2, len(origin), dtype=np.float32)
    return replace(graph, edge_index=edges[:, origin], edge_weight=weight)


def check_edges(graph: Graph, folder: Path, *, improved: bool, add_self_loops: bool) -> None:
    edges, origin = graph.message_edges()
    weight = None if graph.edge_weight is None else torch.from_numpy(graph.edge_weight[origin])
    whole_edges, whole_weight = pyg_gcn_norm(
        torch.from_numpy(edges).long(),
        weight,
        graph.num_nodes,
        improved=improved,
        add_self_loops=add_self_loops,
        dtype=torch.float32,
    )

    def body(comm: LoopbackCommunicator, part: Partition) -> Tensor:
        local_edges, local_weight = gcn_norm(part, improved=improved, add_self_loops=add_self_loops)
        assert (local_edges.dtype, local_weight.dtype) == (torch.int64, torch.float32)
        ids = torch.cat([part.inner_ids, part.halo_ids])
        back = ids[local_edges]
        # the whole graph's edges into this rank's nodes, in order
        mine = torch.isin(whole_edges[1], part.inner_ids)
        assert torch.equal(back, whole_edges[:, mine])
        torch.testing.assert_close(local_weight, whole_weight[mine], rtol=1e-6, atol=0)
        return back

    results = run_on_partitions(graph, folder, 3, body)
    found = Counter(tuple(edge) for back in results for edge in back.T.tolist())
    assert found == Counter(tuple(edge) for edge in whole_edges.T.tolist())


@pytest.mark.parametrize("loops", ["none", "some", "twice"])
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("improved", [False, True], ids=["usual", "improved"])
@pytest.mark.parametrize("add_self_loops", [True, False], ids=["adding loops", "not adding"])
def test_norms_equal_those_of_pyg_edge_for_edge(
    tmp_path: Path, add_self_loops: bool, improved: bool, weighted: bool, directed: bool, loops: str
) -> None:
    graph = random_graph(directed=directed, weighted=weighted, loops=loops)
    check_edges(graph, tmp_path, improved=improved, add_self_loops=add_self_loops)


@pytest.mark.parametrize("add_self_loops", [True, False], ids=["adding loops", "not adding"])
@pytest.mark.parametrize(
    "edges", [[], [(0, 0), (3, 3)], [(0, 1), (0, 2), (0, 3), (0, 4)]], ids=["none", "loops", "star"]
)
def test_norms_of_nodes_without_in_edges_equal_those_of_pyg(
    tmp_path: Path, edges: list[tuple[int, int]], add_self_loops: bool
) -> None:
    check_edges(small_graph(edges, 5), tmp_path, improved=False, add_self_loops=add_self_loops)


def test_weights_of_zero_give_norms_of_zero(tmp_path: Path) -> None:
    graph = replace(
        small_graph([(0, 1), (1, 2), (2, 0)], 3), edge_weight=np.zeros(3, dtype=np.float32)
    )

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        weight = gcn_norm(part, add_self_loops=False)[1]
        assert torch.equal(weight, torch.zeros(part.edge_index.shape[1]))

    run_on_partitions(graph, tmp_path, 2, body)


@pytest.mark.parametrize("options", [{}, {"improved": True}, {"add_self_loops": False}], ids=str)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_converted_convolution_equals_whole_graph(
    tmp_path: Path, weighted: bool, options: dict[str, bool]
) -> None:
    graph = random_graph(directed=True, weighted=weighted, loops="twice")
    layer = GCNConv(NUM_FEATURES, 4, **options)
    state = layer.state_dict()
    weight = None if graph.edge_weight is None else torch.from_numpy(graph.edge_weight)
    edge_index = torch.from_numpy(graph.edge_index).long()
    expected = layer(torch.from_numpy(graph.x), edge_index, weight).detach()

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        local = GCNConv(NUM_FEATURES, 4, **options)
        local.load_state_dict(state)
        convert_model(local, HaloExchange(part, FullPrecision(), comm=comm))
        out = local(part.x, part.edge_index, part.edge_weight).detach()
        torch.testing.assert_close(gather_rows(comm, part, out), expected, rtol=1e-5, atol=1e-5)

    run_on_partitions(graph, tmp_path, 3, body)
