"""Every PyG convolution equals the whole graph on a partition, or is refused with a reason."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing, conv

from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from horovod_sylvie.halo.codec import FullPrecision
from horovod_sylvie.halo.convert import convert_model
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.partition.graph import Graph
from horovod_sylvie.partition.partitioner import partition_graph
from tests.reference_training import gather_rows, load_in_turn

F = 8  # input features
C = 6  # output features
E = 3  # edge attributes

IN_DEGREES = torch.tensor([1, 4, 9, 12, 10, 5, 3, 2, 1, 1, 1, 1])


def mlp(width_in: int, width_out: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width_in, 8), nn.Tanh(), nn.Linear(8, width_out))


# Called as conv(x, edge_index, **extra): which extra arguments, by constructor.
EQUAL = {
    "AGNNConv": (lambda: conv.AGNNConv(), ()),
    "CGConv": (lambda: conv.CGConv(F, dim=E), ("edge_attr",)),
    "ClusterGCNConv": (lambda: conv.ClusterGCNConv(F, C, diag_lambda=0.5), ()),
    "EdgeConv": (lambda: conv.EdgeConv(mlp(2 * F, C)), ()),
    "FastRGCNConv": (lambda: conv.FastRGCNConv(F, C, num_relations=3), ("edge_type",)),
    "FeaStConv": (lambda: conv.FeaStConv(F, C, heads=2), ()),
    "FiLMConv": (lambda: conv.FiLMConv(F, C, num_relations=3), ("edge_type",)),
    "GATConv": (lambda: conv.GATConv(F, C, heads=2, edge_dim=E), ("edge_attr",)),
    "GATv2Conv": (lambda: conv.GATv2Conv(F, C, heads=2, edge_dim=E), ("edge_attr",)),
    "GCNConv": (lambda: conv.GCNConv(F, C), ("edge_weight",)),
    "GENConv": (lambda: conv.GENConv(F, C, edge_dim=E, norm=None), ("edge_attr",)),
    "GINConv": (lambda: conv.GINConv(mlp(F, C)), ()),
    "GINEConv": (lambda: conv.GINEConv(mlp(F, C), edge_dim=E), ("edge_attr",)),
    "GMMConv": (lambda: conv.GMMConv(F, C, dim=E, kernel_size=2), ("edge_attr",)),
    "GeneralConv": (lambda: conv.GeneralConv(F, C, in_edge_channels=E), ("edge_attr",)),
    "GraphConv": (lambda: conv.GraphConv(F, C), ("edge_weight",)),
    "LEConv": (lambda: conv.LEConv(F, C), ("edge_weight",)),
    "LGConv": (lambda: conv.LGConv(normalize=False), ("edge_weight",)),
    "MFConv": (lambda: conv.MFConv(F, C, max_degree=4), ()),
    "NNConv": (lambda: conv.NNConv(F, C, mlp(E, F * C)), ("edge_attr",)),
    "PNAConv": (
        lambda: conv.PNAConv(F, C, ["mean", "max", "std"], ["amplification"], IN_DEGREES),
        (),
    ),
    "RGATConv": (
        lambda: conv.RGATConv(F, C, num_relations=3, edge_dim=E),
        ("edge_type", "edge_attr"),
    ),
    "RGCNConv": (lambda: conv.RGCNConv(F, C, num_relations=3), ("edge_type",)),
    "ResGatedGraphConv": (lambda: conv.ResGatedGraphConv(F, C, edge_dim=E), ("edge_attr",)),
    "SAGEConv": (lambda: conv.SAGEConv(F, C, aggr="max", project=True), ()),
    "SimpleConv": (lambda: conv.SimpleConv(aggr="mean", combine_root="sum"), ("edge_weight",)),
    "TransformerConv": (lambda: conv.TransformerConv(F, C, edge_dim=E), ("edge_attr",)),
    "WLConvContinuous": (lambda: conv.WLConvContinuous(), ("edge_weight",)),
}

# Refused by convert_model, with this in the reason.
REFUSED = {
    "APPNP": (lambda: conv.APPNP(2, 0.1), "several hops"),
    "ARMAConv": (lambda: conv.ARMAConv(F, C), "several hops"),
    "ChebConv": (lambda: conv.ChebConv(F, C, 2), "several hops"),
    "DNAConv": (lambda: conv.DNAConv(F), "neighbours' degrees"),
    "DynamicEdgeConv": (lambda: object.__new__(conv.DynamicEdgeConv), "only forward"),
    "EGConv": (lambda: conv.EGConv(F, 8), "neighbours' degrees"),
    "FAConv": (lambda: conv.FAConv(F), "requires 'x_0'"),
    "FusedGATConv": (lambda: object.__new__(conv.FusedGATConv), "only forward"),
    "GCN2Conv": (lambda: conv.GCN2Conv(F, 0.1), "requires 'x_0'"),
    "GatedGraphConv": (lambda: conv.GatedGraphConv(F, 2), "several hops"),
    "GravNetConv": (lambda: object.__new__(conv.GravNetConv), "only forward"),
    "HEATConv": (
        lambda: conv.HEATConv(F, C, 2, 2, 4, E, 4),
        "requires 'node_type'",
    ),
    "HypergraphConv": (lambda: conv.HypergraphConv(F, C), "only forward"),
    "MixHopConv": (lambda: conv.MixHopConv(F, C), "several hops"),
    "PANConv": (lambda: conv.PANConv(F, C, 2), "several hops"),
    "PDNConv": (lambda: conv.PDNConv(F, C, E, 4), "neighbours' degrees"),
    "PPFConv": (lambda: conv.PPFConv(), "requires 'pos'"),
    "PointGNNConv": (lambda: conv.PointGNNConv(mlp(F, 3), mlp(3, F), mlp(F, F)), "requires 'pos'"),
    "PointNetConv": (lambda: conv.PointNetConv(), "requires 'pos'"),
    "PointTransformerConv": (lambda: conv.PointTransformerConv(F, C), "requires 'pos'"),
    "SGConv": (lambda: conv.SGConv(F, C, K=2), "several hops"),
    "SSGConv": (lambda: conv.SSGConv(F, C, 0.1, K=2), "several hops"),
    "SignedConv": (lambda: conv.SignedConv(F, C, True), "several hops"),
    "SuperGATConv": (lambda: conv.SuperGATConv(F, C), "negative edges"),
    "TAGConv": (lambda: conv.TAGConv(F, C), "several hops"),
}

# Not for one node set with one edge list, or needs a compiled package that PyG does not require.
ELSEWHERE = {"HANConv", "HGTConv", "MeshCNNConv", "MessagePassing", "SplineConv"}


def make_graph() -> Graph:
    rng = np.random.default_rng(3)
    num_nodes, num_edges = 60, 300
    return Graph(
        num_nodes=num_nodes,
        edge_index=rng.integers(0, num_nodes, (2, num_edges)),
        x=rng.standard_normal((num_nodes, F)).astype(np.float32),
        y=rng.integers(0, 3, num_nodes),
        train_mask=np.ones(num_nodes, bool),
        val_mask=np.zeros(num_nodes, bool),
        test_mask=np.zeros(num_nodes, bool),
        edge_weight=rng.uniform(0.1, 1, num_edges).astype(np.float32),
        edge_attr=rng.standard_normal((num_edges, E)).astype(np.float32),
    )


class OneLayer(nn.Module):
    """A linear layer and the convolution, so that gradients travel through the exchange."""

    def __init__(self, convolution: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.lin = nn.Linear(F, F)
        self.conv = convolution
        self.names = names

    def forward(self, x: Tensor, edge_index: Tensor, weight: Tensor, attr: Tensor) -> Tensor:
        extra = {
            "edge_weight": weight,
            "edge_attr": attr,
            "edge_type": (attr[:, 0] > 0).long() + (attr[:, 1] > 0).long(),
        }
        return self.conv(self.lin(x), edge_index, **{name: extra[name] for name in self.names})


@pytest.mark.parametrize("name", EQUAL)
def test_convolution_on_partition_equals_whole_graph(tmp_path: Path, name: str) -> None:
    make, extra = EQUAL[name]
    graph = make_graph()
    whole = OneLayer(make(), extra)
    copies = [copy.deepcopy(whole) for _ in range(3)]
    assert graph.edge_weight is not None and graph.edge_attr is not None
    expected = whole(
        torch.from_numpy(graph.x),
        torch.from_numpy(graph.edge_index).long(),
        torch.from_numpy(graph.edge_weight),
        torch.from_numpy(graph.edge_attr),
    )
    (expected**2).sum().backward()
    partition_graph(graph, tmp_path / "parts", 3, method="random")

    def body(comm: LoopbackCommunicator) -> None:
        part = load_in_turn(tmp_path / "parts", comm)
        model = copies[comm.rank]
        convert_model(model, HaloExchange(part, FullPrecision(), comm=comm))
        out = model(part.x, part.edge_index, part.edge_weight, part.edge_attr)
        (out**2).sum().backward()
        torch.testing.assert_close(gather_rows(comm, part, out.detach()), expected.detach())
        for (key, parameter), other in zip(
            model.named_parameters(), whole.parameters(), strict=True
        ):
            own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            total = comm.allreduce(own.reshape(-1), name=f"grad.{key}").wait().reshape(own.shape)
            wanted = torch.zeros_like(total) if other.grad is None else other.grad
            torch.testing.assert_close(total, wanted, rtol=1e-4, atol=1e-4)

    run_loopback(3, body)


@pytest.mark.parametrize("name", REFUSED)
def test_convolution_that_would_be_wrong_is_refused(tmp_path: Path, name: str) -> None:
    make, reason = REFUSED[name]
    if name in ("DynamicEdgeConv", "FusedGATConv", "GravNetConv"):  # need a compiled package
        convolution = make()
        nn.Module.__init__(convolution)
        convolution.flow = "source_to_target"
    else:
        convolution = make()
    partition_graph(make_graph(), tmp_path / "parts", 1)

    def body(comm: LoopbackCommunicator) -> None:
        part = load_in_turn(tmp_path / "parts", comm)
        halo = HaloExchange(part, FullPrecision(), comm=comm)
        with pytest.raises(TypeError, match=f"'0' \\({name}\\): .*{reason}"):
            convert_model(nn.Sequential(convolution), halo)

    run_loopback(1, body)


def test_tables_name_every_convolution_of_pyg() -> None:
    present = {
        name
        for name in conv.__all__
        if inspect.isclass(getattr(conv, name)) and issubclass(getattr(conv, name), MessagePassing)
    }
    named = EQUAL.keys() | REFUSED.keys() | ELSEWHERE
    assert present - named == set(), "decide: equal, refused, or elsewhere"
