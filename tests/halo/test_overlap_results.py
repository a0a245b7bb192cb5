"""Layers that are computed in two calls equal those that are not, and the whole graph."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import conv

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.codec import FullPrecision
from horovod_sylvie.halo.convert import convert_model
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.halo.subgraphs import SplitGraph, split_by_target
from horovod_sylvie.partition.loader import load_partition
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.ring_partitions import GRAPH, on_ranks, watch_joins, write_partitions
from tests.halo.test_every_convolution import EQUAL, C, F, OneLayer
from tests.reference_training import gather_rows

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_partitions(tmp_path_factory.mktemp("parts"))


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return watch_joins(monkeypatch)


def whole_inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    assert GRAPH.edge_weight is not None and GRAPH.edge_attr is not None
    return (
        torch.from_numpy(GRAPH.x),
        torch.from_numpy(GRAPH.edge_index).long(),
        torch.from_numpy(GRAPH.edge_weight),
        torch.from_numpy(GRAPH.edge_attr),
    )


def step(model: nn.Module, *inputs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the output, and the gradients of parameters and of what was given per edge."""
    x, edge_index, *per_edge = inputs
    if not isinstance(model.get_submodule("conv"), conv.GCNConv):  # that takes no other weights
        per_edge = [one.detach().clone().requires_grad_() for one in per_edge]
    model.zero_grad()
    out = model(x, edge_index, *per_edge)
    out.square().sum().backward()
    tensors = dict(model.named_parameters()) | dict(zip(("weight", "attr"), per_edge, strict=True))
    return out.detach(), {
        name: torch.zeros_like(one) if one.grad is None else one.grad.clone()
        for name, one in tensors.items()
    }


def check(model: nn.Module, folder: Path, size: int) -> None:
    """Compare a split call with one that is not, and with the whole graph."""
    copies = [[copy.deepcopy(model) for _ in range(2)] for _ in range(size)]
    expected, wanted = step(model, *whole_inputs())

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        inputs = (part.x, part.edge_index, part.edge_weight, part.edge_attr)
        results = []
        for overlap, local in zip((True, False), copies[comm.rank], strict=True):
            halo = HaloExchange(part, FullPrecision(), overlap=overlap, comm=comm)
            results.append(step(convert_model(local, halo), *inputs))
        (out, gradients), (unsplit, others) = results
        torch.testing.assert_close(out, unsplit, **CLOSE)
        assert gradients.keys() == others.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, others[name], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(gather_rows(comm, part, out), expected, **CLOSE)
        for name, _ in local.named_parameters():
            total = comm.allreduce(gradients[name].reshape(-1), name=f"grad.{name}").wait()
            torch.testing.assert_close(total, wanted[name].reshape(-1), rtol=1e-4, atol=1e-4)

    on_ranks(folder, size, body)


@pytest.mark.parametrize("name", EQUAL)
def test_every_convolution_is_split_and_equals_the_whole_graph(
    parts: Path, joins: list[int], name: str
) -> None:
    make, extra = EQUAL[name]
    for case in ("metis-3", "random-2"):
        joins.clear()
        check(OneLayer(make(), extra), parts / case, int(case[-1]))
        assert len(joins) == int(case[-1])  # on every rank


KINDS = ["GATConv", "GCNConv", "GINConv", "GraphConv", "SAGEConv", "TransformerConv"]


@pytest.mark.parametrize("case", ["metis-1", "metis-2", "random-4", "metis-4", "gap-3"])
@pytest.mark.parametrize("name", KINDS)
def test_other_partitions_equal_the_whole_graph(
    parts: Path, joins: list[int], name: str, case: str
) -> None:
    make, extra = EQUAL[name]
    check(OneLayer(make(), extra), parts / case, int(case[-1]))
    assert len(joins) == 0 if case == "metis-1" else len(joins) >= 2
    if case == "gap-3":
        assert load_partition(parts / case, 1, 3).num_inner == 0


class Deep(nn.Module):
    """Three layers of different kinds on the same edges, one of them used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = conv.GCNConv(F, C)
        self.second = conv.GATConv(C, C, heads=2, concat=False, dropout=0.0)
        self.third = conv.SAGEConv(C, 2)

    def forward(self, x: Tensor, edge_index: Tensor, weight: Tensor, attr: Tensor) -> Tensor:
        x = self.first(x, edge_index, weight).tanh()
        x = self.second(self.second(x, edge_index).tanh(), edge_index).tanh()
        return self.third(x, edge_index)


def test_layers_share_the_split_of_their_edges(
    parts: Path, joins: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counted(*args: object) -> SplitGraph | None:
        made.append(1)
        return split_by_target(*args)

    monkeypatch.setattr("horovod_sylvie.halo.subgraphs.split_by_target", counted)

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        torch.manual_seed(0)
        model = convert_model(Deep(), HaloExchange(part, FullPrecision(), comm=comm))
        for _ in range(2):
            model(part.x, part.edge_index, part.edge_weight, part.edge_attr).sum().backward()

    on_ranks(parts / "metis-2", 2, body)
    assert len(made) == 2  # once per rank: the first layer's input is fetched, so it is not split
    assert len(joins) == 2 * 2 * 3


@pytest.mark.parametrize("size", [2, 3])
def test_several_layers_equal_the_whole_graph_in_training_and_evaluation(
    parts: Path, joins: list[int], size: int
) -> None:
    whole = Deep()
    copies = [copy.deepcopy(whole) for _ in range(size)]
    expected = whole(*whole_inputs())
    expected.square().sum().backward()
    expected = expected.detach()
    wanted = {name: parameter.grad for name, parameter in whole.named_parameters()}

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, FullPrecision(), comm=comm)
        model = convert_model(copies[comm.rank], halo)
        x = part.x.clone()
        for _ in range(2):
            model.zero_grad()
            out = model(x, part.edge_index, part.edge_weight, part.edge_attr)
            out.square().sum().backward()
        torch.testing.assert_close(gather_rows(comm, part, out.detach()), expected, **CLOSE)
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            total = comm.allreduce(parameter.grad.contiguous(), name=f"grad.{name}").wait()
            torch.testing.assert_close(total, wanted[name], rtol=1e-4, atol=1e-4)
        model.eval()
        joins.clear()
        comm.allreduce(torch.zeros(1), name="cleared").wait()
        with torch.inference_mode():
            out = model(x, part.edge_index, part.edge_weight, part.edge_attr)
        torch.testing.assert_close(gather_rows(comm, part, out.clone()), expected, **CLOSE)
        assert len(joins) >= 3  # evaluation is split too

    on_ranks(parts / f"metis-{size}", size, body)
