"""Products travel where they are narrower than rows: same results, fewer bytes, nothing else."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, MessagePassing, SAGEConv
from torch_geometric.nn.dense import Linear

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.applied_linear import AppliedLinear
from horovod_sylvie.halo.codec import FullPrecision
from horovod_sylvie.halo.convert import convert_model
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.halo.message import header_rows
from horovod_sylvie.halo.smaller_side import prepare_smaller_side, smaller_side, widths_around
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.on_partitions import run_on_partitions
from tests.reference_training import NUM_FEATURES, gather_rows, make_graph

GRAPH = make_graph(num_nodes=40)
W = 8  # width of the convolution's input


class OneLayer(nn.Module):
    """A linear layer and a convolution, so that the convolution's input needs a gradient."""

    def __init__(self, conv: MessagePassing, width: int = W) -> None:
        super().__init__()
        self.first = nn.Linear(NUM_FEATURES, width)
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(self.first(x), edge_index)


# By name: the convolution, and the columns that travel.
NARROWING = {
    "GCN": (lambda: GCNConv(W, 3), 3),
    "GCN without normalisation": (lambda: GCNConv(W, 3, normalize=False), 3),
    "GAT": (lambda: GATConv(W, 3, heads=2), 6),
    "SAGE": (lambda: SAGEConv(W, 3), 3),
    "SAGE of sums": (lambda: SAGEConv(W, 3, aggr="add", normalize=True), 3),
    "SAGE without root": (lambda: SAGEConv(W, 3, root_weight=False, bias=False), 3),
}


def widening(conv_class: type, **options: object) -> Callable[[], MessagePassing]:
    return lambda: conv_class(W, 3, **options)


def with_hook() -> MessagePassing:
    conv = GCNConv(W, 3)
    conv.lin.register_forward_pre_hook(lambda module, inputs: None)
    return conv


def with_own_linear() -> MessagePassing:
    class Doubled(Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    conv = GCNConv(W, 3)
    conv.lin = Doubled(W, 3, bias=False)
    return conv


def with_one_linear_for_both() -> MessagePassing:
    conv = SAGEConv(W, 3)
    conv.lin_r = conv.lin_l
    return conv


class SquaredSAGE(SAGEConv):
    def message(self, x_j: Tensor) -> Tensor:
        return x_j.square()


# Rows travel as they are.
KEPT = {
    "GCN that widens": lambda: GCNConv(W, 9),
    "GAT that widens": lambda: GATConv(W, 3, heads=3),
    "GAT with two weights": lambda: GATConv((W, W), 3),
    "SAGE of equal width": lambda: SAGEConv(W, W),
    "GCN of equal width": lambda: GCNConv(W, W),
    "GAT of equal width": lambda: GATConv(W, W // 2, heads=2),
    "SAGE of maxima": widening(SAGEConv, aggr="max"),
    "SAGE of two kinds": widening(SAGEConv, aggr=["mean", "sum"]),
    "SAGE that projects": widening(SAGEConv, project=True),
    "SAGE with other messages": lambda: SquaredSAGE(W, 3),
    "hook on the linear layer": with_hook,
    "linear layer of a user": with_own_linear,
    "linear layer used twice": with_one_linear_for_both,
}
if "residual" in inspect.signature(GATConv).parameters:  # PyG 2.6
    KEPT["GAT with a residual"] = widening(GATConv, residual=True)


def num_bytes(num_columns: int, num_rows: int, size: int) -> int:
    width = 4 * num_columns
    return width * (num_rows + (size - 1) * header_rows(width))


def check_against_whole(
    make: Callable[[], MessagePassing], num_columns: int, folder: Path, size: int = 3
) -> None:
    model = OneLayer(make())
    # Not by copy.deepcopy: PyG before 2.7 copies a linear layer without what users put on it
    copies = [OneLayer(make()) for _ in range(size)]
    for other in copies:
        other.load_state_dict(model.state_dict())
    x = torch.from_numpy(GRAPH.x)
    expected = model(x, torch.from_numpy(GRAPH.message_edges()[0]).long())
    expected.square().sum().backward()

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, FullPrecision(), overlap=False, comm=comm)
        local = convert_model(copies[comm.rank], halo)
        out = local(part.x, part.edge_index)
        out.square().sum().backward()
        torch.testing.assert_close(gather_rows(comm, part, out.detach()), expected.detach())
        for (name, parameter), other in zip(
            local.named_parameters(), model.parameters(), strict=True
        ):
            assert parameter.grad is not None and other.grad is not None
            total = comm.allreduce(parameter.grad.contiguous(), name=f"grad.{name}").wait()
            torch.testing.assert_close(total, other.grad, rtol=1e-5, atol=1e-4)
        entries = halo.traffic.entries
        num_boundary, num_halo = len(halo.plan.send_index), halo.plan.num_halo
        sent = entries["conv", "forward"].bytes_sent
        returned = entries["conv", "backward"].bytes_sent
        assert sent == num_bytes(num_columns, num_boundary, size)
        assert returned == num_bytes(num_columns, num_halo, size)
        with torch.no_grad():
            local(part.x, part.edge_index)
        assert halo.traffic.entries["conv", "evaluation"].bytes_sent == sent

    run_on_partitions(GRAPH, folder, size, body)


@pytest.mark.parametrize("name", NARROWING)
def test_products_travel_and_equal_the_whole_graph(tmp_path: Path, name: str) -> None:
    make, num_columns = NARROWING[name]
    check_against_whole(make, num_columns, tmp_path)


@pytest.mark.parametrize("name", KEPT)
def test_rows_travel_where_products_would_be_wrong_or_wider(tmp_path: Path, name: str) -> None:
    check_against_whole(KEPT[name], W, tmp_path)


@pytest.mark.parametrize("name", NARROWING)
def test_switched_off_rows_travel_and_layers_keep_their_class(tmp_path: Path, name: str) -> None:
    make, _ = NARROWING[name]

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, FullPrecision(), smaller_side=False, comm=comm)
        model = convert_model(OneLayer(make()), halo)
        model(part.x, part.edge_index)
        assert not any(isinstance(module, AppliedLinear) for module in model.modules())
        sent = halo.traffic.entries["conv", "forward"].bytes_sent
        assert sent == num_bytes(W, len(halo.plan.send_index), 2)

    run_on_partitions(GRAPH, tmp_path, 2, body)


@pytest.mark.parametrize("kind", [GCNConv, GATConv, SAGEConv])
def test_features_are_fetched_once_and_serve_in_evaluation(tmp_path: Path, kind: type) -> None:
    layers = nn.ModuleList([kind(NUM_FEATURES, 3)])
    copies = [copy.deepcopy(layers) for _ in range(2)]

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, FullPrecision(), comm=comm)
        model = convert_model(copies[comm.rank], halo)[0]
        with torch.no_grad():
            evaluated = model.eval()(part.x, part.edge_index)  # nothing is fetched: products
        sent = halo.traffic.entries["0", "evaluation"].bytes_sent
        assert sent == num_bytes(3, len(halo.plan.send_index), 2)
        model.train()
        for _ in range(3):
            model(part.x, part.edge_index).sum().backward()
        model.eval()
        with torch.no_grad():
            again = model(part.x, part.edge_index)
        torch.testing.assert_close(again, evaluated)
        assert halo.traffic.total().num_exchanges == 2
        fetched = halo.traffic.entries["0", "features"].bytes_sent
        assert fetched == num_bytes(NUM_FEATURES, len(halo.plan.send_index), 2)

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_layer_that_is_called_twice_and_one_that_fails_apply_their_weight(tmp_path: Path) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(NUM_FEATURES, W)
            self.second = nn.Linear(NUM_FEATURES, W)
            self.conv = GCNConv(W, 3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            first = self.conv(self.first(x), edge_index)
            return first.tanh() + self.conv(self.second(x), edge_index)

    whole = Twice()
    copies = [copy.deepcopy(whole) for _ in range(2)]
    x, edges = torch.from_numpy(GRAPH.x), torch.from_numpy(GRAPH.message_edges()[0]).long()
    expected = whole(x, edges)

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        model = convert_model(copies[comm.rank], HaloExchange(part, FullPrecision(), comm=comm))
        bias = model.conv.bias
        model.conv.bias = nn.Parameter(torch.zeros(4))
        with pytest.raises(RuntimeError, match="must match the size"):
            model(part.x, part.edge_index)
        assert isinstance(model.conv.lin, AppliedLinear)
        assert not model.conv.lin.applied
        assert model.conv.lin(torch.ones(1, W)).equal(model.conv.lin.apply_weight(torch.ones(1, W)))
        model.conv.bias = bias
        out = model(part.x, part.edge_index)
        assert not model.conv.lin.applied
        torch.testing.assert_close(gather_rows(comm, part, out.detach()), expected.detach())

    run_on_partitions(GRAPH, tmp_path, 2, body)


@pytest.mark.parametrize("kind", [GCNConv, GATConv, SAGEConv])
def test_prepared_layer_is_still_what_it_was(kind: type) -> None:
    conv = kind(W, 3)
    state = {key: value.clone() for key, value in conv.state_dict().items()}
    parameters = dict(conv.named_parameters())
    x, edges = torch.randn(5, W), torch.tensor([[0, 1, 2], [1, 2, 3]])
    expected = conv(x, edges)
    assert widths_around(conv) == (W, 3)
    prepare_smaller_side(conv)
    linear = smaller_side(conv, None, "conv")
    assert isinstance(linear, Linear)
    assert all(dict(conv.named_parameters())[name] is p for name, p in parameters.items())
    assert torch.equal(conv(x, edges), expected)
    for other in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert type(smaller_side(other, None, "conv")) is AppliedLinear
        assert list(other.state_dict()) == list(state)
        assert all(torch.equal(other.state_dict()[key], state[key]) for key in state)
        assert torch.equal(other(x, edges), expected)
        fresh = kind(W, 3)
        fresh.load_state_dict(other.state_dict())
        assert torch.equal(fresh(x, edges), expected)
    prepare_smaller_side(conv)  # once more changes nothing
    assert smaller_side(conv, None, "conv") is linear


def test_applied_linear_adds_its_bias_alone_while_applied() -> None:
    linear = Linear(3, 2)
    x = torch.randn(4, 3)
    expected = linear(x)
    AppliedLinear.convert(linear)
    assert isinstance(linear, AppliedLinear)
    torch.testing.assert_close(linear(x), expected)
    product = linear.apply_weight(x)
    torch.testing.assert_close(product, expected - linear.bias)
    linear.applied = torch.float32
    torch.testing.assert_close(linear(product), expected)
    linear.applied = torch.bfloat16  # what autocast made of it, in the rows' dtype again
    assert linear(product).equal((product + linear.bias).bfloat16())
    linear.applied = torch.float32
    linear.bias = None
    assert linear(product) is product
