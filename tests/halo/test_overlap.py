"""Interior rows are computed while halo rows travel, and where they must not be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg_nn
from torch_geometric.nn import MessagePassing, conv

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.codec import FullPrecision
from horovod_sylvie.halo.convert import convert_model
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.halo.overlap import is_watched, may_split
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.on_partitions import WatchedCommunicator
from tests.halo.ring_partitions import GRAPH, on_ranks, watch_joins, write_partitions
from tests.halo.test_every_convolution import C, F


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_partitions(tmp_path_factory.mktemp("parts"))


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return watch_joins(monkeypatch)


class Record:
    """What happened on one rank, in order."""

    def __init__(self, comm: LoopbackCommunicator, linear: nn.Module) -> None:
        self.events: list[str] = []
        self.comm = WatchedCommunicator(comm, sent=self._sent, received=self._received)
        linear.register_forward_hook(self._forward)
        linear.register_full_backward_hook(self._backward)

    def _sent(self, name: str, rows: Tensor) -> None:
        self.events.append(f"send {name.rpartition('.')[2]}")

    def _received(self, name: str, rows: Tensor) -> None:
        self.events.append(f"receive {name.rpartition('.')[2]}")

    def _forward(self, module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        self.events.append(f"compute {len(output)}")

    def _backward(self, module: nn.Module, grad_input: object, grad_output: list[Tensor]) -> None:
        self.events.append(f"differentiate {len(grad_output[0])}")


# A layer inside the convolution that sees its target rows, and whether only those.
INNER = {
    "GraphConv": (lambda: conv.GraphConv(F, C), lambda layer: layer.lin_rel),
    "SAGEConv": (lambda: conv.SAGEConv(F, C), lambda layer: layer.lin_r),
    "GINConv": (lambda: conv.GINConv(nn.Linear(F, C)), lambda layer: layer.nn),
}


@pytest.mark.parametrize("name", INNER)
def test_interior_is_computed_while_rows_travel_and_while_gradients_do(
    parts: Path, name: str
) -> None:
    make, inner = INNER[name]

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        layer = make()
        record = Record(comm, inner(layer))
        halo = HaloExchange(part, FullPrecision(), comm=record.comm)
        model = convert_model(nn.ModuleList([layer]), halo)
        x = part.x.clone().requires_grad_()
        model[0](x, part.edge_index).sum().backward()
        marginal = part.edge_index[1, part.edge_index[0] >= part.num_inner].unique()
        early, late = part.num_inner - len(marginal), len(marginal)
        assert record.events == [
            "send forward",
            f"compute {early}",
            "receive forward",
            f"compute {late}",
            f"differentiate {late}",
            "send backward",
            f"differentiate {early}",
            "receive backward",
        ]

    on_ranks(parts / "metis-2", 2, body)


def test_aggregation_of_other_convolutions_comes_before_the_rows(parts: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        layer = conv.GATv2Conv(F, C, share_weights=True)
        record = Record(comm, layer.lin_l)
        halo = HaloExchange(part, FullPrecision(), comm=record.comm)
        model = convert_model(nn.ModuleList([layer]), halo)
        x = part.x.clone().requires_grad_()
        model[0](x, part.edge_index).sum().backward()
        kinds = [event.split()[0] for event in record.events]
        assert kinds == [
            *("send", "compute", "receive", "compute"),
            *("differentiate", "send", "differentiate", "receive"),
        ]

    on_ranks(parts / "metis-2", 2, body)


def one_call(
    parts: Path, make: Callable[[], nn.Module], *, num_calls: int = 1, **extra: object
) -> None:
    """Call a layer on two ranks, with an input that needs a gradient."""

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        model = nn.ModuleList([make()])
        convert_model(model, HaloExchange(part, FullPrecision(), comm=comm))
        for _ in range(num_calls):
            x = part.x.clone().requires_grad_()
            out = model[0](x, part.edge_index, **extra)
            rows = out[0] if isinstance(out, tuple) else out
            assert len(rows) == part.num_inner
            rows.sum().backward()

    on_ranks(parts / "metis-2", 2, body)


def normalised_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(F, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, C))


def hooked() -> nn.Module:
    layer = conv.GraphConv(F, C)

    def all_rows(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        assert len(output) > GRAPH.num_nodes // 3
        return output

    layer.register_forward_hook(all_rows)
    return layer


@pytest.mark.parametrize(
    ("make", "extra"),
    [
        (lambda: conv.GINConv(normalised_mlp()), {}),
        (lambda: conv.GATConv(F, C), {"return_attention_weights": True}),
        (hooked, {}),
    ],
    ids=["BatchNorm inside", "attention weights asked for", "a user's hook"],
)
def test_calls_that_need_all_rows_together_are_not_split(
    parts: Path, joins: list[int], make: Callable[[], nn.Module], extra: dict[str, object]
) -> None:
    one_call(parts, make, **extra)
    assert joins == []
    one_call(parts, lambda: conv.GraphConv(F, C))
    assert len(joins) == 2


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("mean", True), (["max", "std"], True), ("median", True), ("lstm", False), ("gru", False)],
)
def test_aggregations_that_pad_are_not_split(
    aggregation: str | list[str], *, expected: bool
) -> None:
    if aggregation == "gru":
        aggregation = pyg_nn.GRUAggregation(F, F)
    assert may_split(conv.SAGEConv(F, C, aggr=aggregation)) is expected


def test_convolution_that_is_explained_is_watched() -> None:
    layer = conv.GraphConv(F, C)
    assert not is_watched(layer)
    layer.explain = True
    assert is_watched(layer)
    layer.explain = False
    layer.forward = layer.forward
    assert is_watched(layer)


class OfAUser(MessagePassing):
    """A convolution that is tried at its first call."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(F, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x))


class Keeping(OfAUser):
    """It keeps what it computed, for a term of the loss."""

    kept: Tensor

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.kept = super().forward(x, edge_index)
        return self.kept


class InPairs(OfAUser):
    """It returns two things."""

    def __init__(self, seen: list[int]) -> None:
        super().__init__()
        self.seen = seen

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        self.seen.append(len(x))
        return super().forward(x, edge_index), self.lin.weight


def test_convolution_of_a_user_is_split_from_its_second_call(parts: Path, joins: list[int]) -> None:
    one_call(parts, OfAUser)
    assert joins == []
    one_call(parts, OfAUser, num_calls=3)
    assert len(joins) == 2 * 2


def test_convolution_of_a_user_that_keeps_what_it_computed_is_not_split(
    parts: Path, joins: list[int]
) -> None:
    one_call(parts, Keeping, num_calls=3)
    assert joins == []


def test_convolution_of_a_user_that_returns_more_is_split_no_more(
    parts: Path, joins: list[int]
) -> None:
    seen: list[int] = []
    one_call(parts, lambda: InPairs(seen), num_calls=4)
    assert joins == []
    # three times in the first call, where it is tried; twice in the second, to find out; then once
    assert len(seen) == 2 * (3 + 2 + 1 + 1)


def test_switched_off_nothing_is_split(parts: Path, joins: list[int]) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, FullPrecision(), overlap=False, comm=comm)
        model = convert_model(nn.ModuleList([conv.GraphConv(F, C)]), halo)
        model[0](part.x.clone().requires_grad_(), part.edge_index).sum().backward()

    on_ranks(parts / "metis-2", 2, body)
    assert joins == []


def test_values_per_edge_of_a_wrong_length_are_still_an_error(parts: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        model = nn.ModuleList([conv.GraphConv(F, C)])
        convert_model(model, HaloExchange(part, FullPrecision(), comm=comm))
        x = part.x.clone().requires_grad_()
        longer = torch.ones(part.edge_index.shape[1] + 1)
        with pytest.raises(RuntimeError, match="must match the size"):
            model[0](x, part.edge_index, longer)

    on_ranks(parts / "metis-2", 2, body)
