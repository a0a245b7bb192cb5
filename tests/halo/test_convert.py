"""What convert_model keeps, and that models convert and equal the whole graph."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg_nn

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.batch_norm import SynchronizedBatchNorm
from horovod_sylvie.halo.codec import FullPrecision
from horovod_sylvie.halo.convert import convert_model
from horovod_sylvie.halo.delta import Delta
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.halo.packed_codec import OneBit
from horovod_sylvie.halo.staleness import Pipelined
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.on_partitions import run_on_partitions
from tests.reference_training import NUM_FEATURES, Network, gather_rows, make_graph

GRAPH = make_graph(num_nodes=40)
KINDS = ["sage", "gcn", "graph", "gat", "gin"]


def whole_inputs() -> tuple[Tensor, Tensor]:
    return torch.from_numpy(GRAPH.x), torch.from_numpy(GRAPH.message_edges()[0]).long()


def converted(model: nn.Module, comm: LoopbackCommunicator, part: Partition) -> nn.Module:
    return convert_model(model, HaloExchange(part, FullPrecision(), comm=comm))


def check_against_whole(model: nn.Module, folder: Path, size: int = 3) -> None:
    """Compare outputs, gradients and running statistics of one training step, and evaluation."""
    copies = [copy.deepcopy(model) for _ in range(size)]
    x, edge_index = whole_inputs()
    expected = model(x, edge_index)
    expected.square().sum().backward()
    model.eval()
    evaluated = model(x, edge_index).detach()

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        local = converted(copies[comm.rank], comm, part)
        out = local(part.x, part.edge_index)
        out.square().sum().backward()
        close = {"rtol": 1e-4, "atol": 1e-4}
        torch.testing.assert_close(gather_rows(comm, part, out.detach()), expected, **close)
        for (name, parameter), other in zip(
            local.named_parameters(), model.parameters(), strict=True
        ):
            own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            total = comm.allreduce(own.reshape(-1), name=f"grad.{name}").wait().reshape(own.shape)
            wanted = torch.zeros_like(total) if other.grad is None else other.grad
            scale = max(1.0, float(wanted.abs().max()))
            torch.testing.assert_close(total / scale, wanted / scale, **close)
        local.eval()
        out = local(part.x, part.edge_index).detach()
        torch.testing.assert_close(gather_rows(comm, part, out), evaluated, **close)
        for name, buffer in local.named_buffers():
            torch.testing.assert_close(buffer, dict(model.named_buffers())[name], **close)

    run_on_partitions(GRAPH, folder, size, body)


READY_MADE = {
    "GraphSAGE": (pyg_nn.GraphSAGE, {"norm": "batch_norm"}),
    "GraphSAGE with JumpingKnowledge": (pyg_nn.GraphSAGE, {"jk": "lstm", "norm": "batch_norm"}),
    "GAT": (pyg_nn.GAT, {"heads": 2, "norm": "batch_norm"}),
    "GAT version 2": (pyg_nn.GAT, {"v2": True, "norm": "batch_norm"}),
    "GAT with LayerNorm": (pyg_nn.GAT, {"norm": "layer_norm", "norm_kwargs": {"mode": "node"}}),
    "GIN": (pyg_nn.GIN, {"norm": "batch_norm"}),
    "GCN": (pyg_nn.GCN, {"norm": "batch_norm"}),
}


@pytest.mark.parametrize("name", READY_MADE)
def test_ready_made_model_equals_whole_graph(tmp_path: Path, name: str) -> None:
    model_class, options = READY_MADE[name]
    check_against_whole(model_class(NUM_FEATURES, 8, 2, 4, **options), tmp_path)


@pytest.mark.parametrize(
    "make",
    [
        lambda: pyg_nn.SAGEConv(NUM_FEATURES, 4),
        lambda: pyg_nn.GCNConv(NUM_FEATURES, 4, cached=True),
        lambda: pyg_nn.GATConv(NUM_FEATURES, 4),
        lambda: pyg_nn.SAGEConv(NUM_FEATURES, 4, aggr=["mean", "softmax"]),
    ],
    ids=["SAGEConv", "GCNConv", "GATConv", "several aggregations"],
)
def test_model_that_is_one_convolution_equals_whole_graph(tmp_path: Path, make) -> None:
    check_against_whole(make(), tmp_path)


class Shared(nn.Module):
    """One convolution and one BatchNorm, each used twice, the latter under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(NUM_FEATURES, 6)
        self.conv = pyg_nn.SAGEConv(6, 6)
        self.first = self.second = nn.BatchNorm1d(6)
        self.block = nn.ModuleList([self.first, self.conv])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.first(self.conv(self.lin(x), edge_index)).relu()
        return self.second(self.block[1](x, edge_index))


def test_layers_that_are_shared_stay_shared_and_equal_whole_graph(tmp_path: Path) -> None:
    check_against_whole(Shared(), tmp_path)

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        model = converted(Shared(), comm, part)
        assert isinstance(model.first, SynchronizedBatchNorm)
        assert model.first is model.second is model.block[0]
        assert model.first.layer == "first"

    run_on_partitions(GRAPH, tmp_path / "again", 1, body)


@pytest.mark.parametrize("kind", KINDS)
def test_conversion_keeps_parameters_and_state_dict(tmp_path: Path, kind: str) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        model = Network(kind, batch_norm=True)
        before = dict(model.named_parameters())
        state = {key: value.clone() for key, value in model.state_dict().items()}
        assert converted(model, comm, part) is model
        after = dict(model.named_parameters())
        assert before.keys() == after.keys()
        assert all(after[name] is parameter for name, parameter in before.items())
        assert list(model.state_dict()) == list(state)
        assert all(torch.equal(model.state_dict()[key], value) for key, value in state.items())
        fresh = Network(kind, batch_norm=True)
        fresh.load_state_dict(model.state_dict())  # what was trained runs on one process again

    run_on_partitions(GRAPH, tmp_path, 1, body)


def test_optimizer_made_before_conversion_trains_the_model(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        model = Network("sage", batch_norm=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        before = [parameter.detach().clone() for parameter in model.parameters()]
        converted(model, comm, part)
        model(part.x, part.edge_index).square().sum().backward()
        optimizer.step()
        for parameter, old in zip(model.parameters(), before, strict=True):
            assert not torch.equal(parameter, old)

    run_on_partitions(GRAPH, tmp_path, 1, body)


@pytest.mark.parametrize("kind", KINDS)
def test_deep_copy_of_converted_model_gives_the_same(tmp_path: Path, kind: str) -> None:
    model = Network(kind, batch_norm=True)

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        original = converted(copy.deepcopy(model), comm, part)
        twin = copy.deepcopy(original)
        outputs = [one(part.x, part.edge_index) for one in (original, twin)]
        assert torch.equal(*outputs)
        outputs[1].sum().backward()
        assert all(parameter.grad is None for parameter in original.parameters())
        assert all(parameter.grad is not None for parameter in twin.parameters())
        for own, copied in zip(original.buffers(), twin.buffers(), strict=True):
            assert torch.equal(own, copied)
            assert own.data_ptr() != copied.data_ptr()

    run_on_partitions(GRAPH, tmp_path, 2, body)


@pytest.mark.parametrize(
    "options",
    [{"staleness": Pipelined(warmup=1)}, {"codec": Delta(OneBit("centroid"))}],
    ids=["pipelined", "changes"],
)
def test_deep_copy_evaluates_but_does_not_train_where_rows_are_kept(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        torch.manual_seed(3)
        model = convert_model(
            Network("sage", batch_norm=True), HaloExchange(part, comm=comm, **options)
        )
        model(part.x, part.edge_index).sum().backward()
        twin = copy.deepcopy(copy.deepcopy(model))
        with pytest.raises(
            RuntimeError,
            match="'convs.1': expected the model that was converted in training, got a copy of it. "
            ".* Load the copy's state_dict into that model; or copy it before convert_model, and "
            "convert each with a HaloExchange of its own, with its own 'name'",
        ):
            twin(part.x, part.edge_index)
        with torch.no_grad():
            assert twin(part.x, part.edge_index).shape[0] == part.num_inner
        model.load_state_dict(twin.state_dict())
        outputs = [one.eval()(part.x, part.edge_index).detach() for one in (model, twin)]
        assert torch.equal(*outputs)
        twin(part.x, part.edge_index).sum().backward()  # in evaluation nothing is kept
        model.train()(part.x, part.edge_index).sum().backward()

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_exchange_that_keeps_no_rows_serves_several_models(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, comm=comm)
        assert not halo.has_model
        for _ in range(2):
            model = convert_model(Network("sage", batch_norm=True), halo)
            assert halo.has_model
            model(part.x, part.edge_index).sum().backward()

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_attention_weights_are_returned_with_the_inner_rows(tmp_path: Path) -> None:
    conv = pyg_nn.GATConv(NUM_FEATURES, 4, heads=2)
    x, edge_index = whole_inputs()
    expected, (whole_edges, whole_attention) = conv(x, edge_index, return_attention_weights=True)
    total = torch.zeros(GRAPH.num_nodes, 2).index_add(0, whole_edges[1], whole_attention.detach())
    torch.testing.assert_close(total, torch.ones(GRAPH.num_nodes, 2))

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        local = converted(nn.ModuleList([copy.deepcopy(conv)]), comm, part)[0]
        out, (edges, attention) = local(part.x, part.edge_index, return_attention_weights=True)
        assert out.shape[0] == part.num_inner
        torch.testing.assert_close(gather_rows(comm, part, out.detach()), expected.detach())
        into_inner = edges[1] < part.num_inner
        sums = torch.zeros(part.num_inner, 2)
        sums.index_add_(0, edges[1, into_inner], attention[into_inner].detach())
        torch.testing.assert_close(sums, torch.ones(part.num_inner, 2))

    run_on_partitions(GRAPH, tmp_path, 3, body)


def test_batch_norm_inside_mlp_of_bipartite_convolution_is_synchronised(tmp_path: Path) -> None:
    mlp = nn.Sequential(nn.Linear(NUM_FEATURES, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    check_against_whole(pyg_nn.GINConv(mlp), tmp_path)

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        model = converted(pyg_nn.GIN(NUM_FEATURES, 8, 2, 4, norm="batch_norm"), comm, part)
        kinds = {type(module) for module in model.modules()}
        assert SynchronizedBatchNorm in kinds
        assert nn.BatchNorm1d not in kinds

    run_on_partitions(GRAPH, tmp_path / "again", 1, body)


def test_sync_batch_norm_of_torch_is_replaced(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        model = Network("sage", batch_norm=True)
        nn.SyncBatchNorm.convert_sync_batchnorm(model)
        converted(model, comm, part)
        assert all(isinstance(norm, SynchronizedBatchNorm) for norm in model.norms)
        assert bool(model(part.x, part.edge_index).isfinite().all())

    run_on_partitions(GRAPH, tmp_path, 2, body)
