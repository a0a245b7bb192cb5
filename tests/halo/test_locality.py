"""Convolutions of users: right on a partition, or stopped at their first call on every rank."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, MessagePassing, SAGEConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import degree

from horovod_sylvie.comm.errors import PeerError
from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from horovod_sylvie.halo.codec import FullPrecision
from horovod_sylvie.halo.convert import convert_model
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.partition.partitioner import partition_graph
from tests.reference_training import NUM_FEATURES, gather_rows, load_in_turn, make_graph


class Linear(MessagePassing):
    """What the layers below share."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(NUM_FEATURES, NUM_FEATURES, bias=False)
        self.drop = nn.Dropout(0.3)

    def message(self, x_j: Tensor, weight: Tensor | None) -> Tensor:
        return x_j if weight is None else weight[:, None] * x_j


class MeanOfNeighbours(Linear):
    """Right: divides by the degree of the target, whose in-edges are all here."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        weight = 1 / degree(edge_index[1], x.shape[0])[edge_index[1]]
        return self.propagate(edge_index, x=self.lin(x), weight=weight)


class RootAndNeighbours(Linear):
    """Right: with an attribute per edge, and dropout inside."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.drop(x + self.propagate(edge_index, x=self.lin(x), weight=edge_attr[:, 0]))


class TutorialGCN(Linear):
    """Wrong: PyG's tutorial layer; divides by degrees of neighbours too."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        row, col = edge_index
        scale = degree(col, x.shape[0]).clamp(min=1).pow(-0.5)
        return self.propagate(edge_index, x=self.lin(x), weight=scale[row] * scale[col])


class MethodGCN(Linear):
    """Wrong: normalises in a method."""

    def norm(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        return gcn_norm(edge_index, None, x.shape[0])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index, weight = self.norm(x, edge_index)
        return self.propagate(edge_index, x=self.lin(x), weight=weight)


class Centred(Linear):
    """Wrong: a statistic over all rows."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x - x.mean(0)), weight=None)


class TwoHops(Linear):
    """Wrong: the second hop reads rows that were not exchanged."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.propagate(edge_index, x=self.lin(x), weight=None)
        return self.propagate(edge_index, x=x, weight=None)


class SizedForNodes(Linear):
    """Wrong: parameters per row."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x) + torch.ones(len(x) // 1000), weight=None)


def on_ranks(tmp_path: Path, body, num_ranks: int = 3) -> None:
    partition_graph(make_graph(), tmp_path / "parts", num_ranks)

    def run(comm: LoopbackCommunicator) -> None:
        part = load_in_turn(tmp_path / "parts", comm)
        body(comm, part, HaloExchange(part, FullPrecision(), comm=comm))

    run_loopback(num_ranks, run)


@pytest.mark.parametrize("kind", [MeanOfNeighbours, RootAndNeighbours])
def test_local_convolution_of_a_user_equals_whole_graph(tmp_path: Path, kind: type) -> None:
    graph = make_graph()
    edges = torch.from_numpy(graph.message_edges()[0].astype(np.int64))
    torch.manual_seed(3)
    whole = kind().eval()

    def body(comm, part, halo) -> None:
        model = nn.Module()
        model.conv = kind().eval()
        model.load_state_dict({f"conv.{key}": value for key, value in whole.state_dict().items()})
        convert_model(model, halo)
        extra = {}
        expected_extra = {}
        if kind is RootAndNeighbours:
            extra = {"edge_attr": torch.full((part.edge_index.shape[1], 1), 0.5)}
            expected_extra = {"edge_attr": torch.full((edges.shape[1], 1), 0.5)}
        expected = whole(torch.from_numpy(graph.x), edges, **expected_extra)
        rows = gather_rows(comm, part, model.conv(part.x, part.edge_index, **extra).detach())
        # isolated nodes have 0/0 in both, or neither
        torch.testing.assert_close(rows, expected.detach(), equal_nan=True)

    on_ranks(tmp_path, body)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (TutorialGCN, "depends on more than the node's own in-edges"),
        (MethodGCN, "depends on more than the node's own in-edges"),
        (Centred, "depends on more than the node's own in-edges"),
        (TwoHops, "propagates more than once"),
        (SizedForNodes, "cannot be called with more rows"),
    ],
)
def test_convolution_of_a_user_that_is_not_local_is_stopped_on_every_rank(
    tmp_path: Path, kind: type, reason: str
) -> None:
    stopped = []

    def body(comm, part, halo) -> None:
        model = nn.Sequential(kind())
        convert_model(model, halo)
        with pytest.raises((TypeError, PeerError), match=reason):
            model[0](part.x, part.edge_index)
        stopped.append(comm.rank)

    on_ranks(tmp_path, body)
    assert sorted(stopped) == [0, 1, 2]


def test_convolution_is_tried_once_and_leaves_no_trace(tmp_path: Path) -> None:
    calls = []

    class Counted(RootAndNeighbours):
        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
            calls.append((len(x), self.training))
            return super().forward(x, edge_index, edge_attr)

    def body(comm, part, halo) -> None:
        model = nn.Sequential(Counted())
        convert_model(model, halo)
        attr = torch.ones(part.edge_index.shape[1], 1)
        torch.manual_seed(5)
        first = model[0](part.x, part.edge_index, attr)
        torch.manual_seed(5)
        assert torch.equal(first, model[0](part.x, part.edge_index, attr))
        rows = part.num_inner + part.num_halo
        assert calls == [(rows, False), (rows + 3, False), (rows, True), (rows, True)]
        assert model[0].training

    on_ranks(tmp_path, body, num_ranks=1)


def test_layers_that_hide_their_normalisation_are_refused_or_stopped(tmp_path: Path) -> None:
    def quietly(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    class Wrapped(Linear):
        @quietly
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            edge_index, weight = gcn_norm(edge_index, None, x.shape[0])
            return self.propagate(edge_index, x=self.lin(x), weight=weight)

    class Narrow(GCNConv):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x, edge_index)

    def body(comm, part, halo) -> None:
        with pytest.raises(TypeError, match="normalises by its neighbours' degrees"):
            convert_model(nn.Sequential(Wrapped()), halo)
        with pytest.raises(TypeError, match="its forward takes no edge_weight"):
            convert_model(nn.Sequential(Narrow(NUM_FEATURES, 2)), halo)
        convert_model(nn.Sequential(SAGEConv(NUM_FEATURES, 2)), halo)

    on_ranks(tmp_path, body, num_ranks=2)
