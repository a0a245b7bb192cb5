"""What users put on a convolution is given rows, not products; and autocast gives what it gave."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, MessagePassing, SAGEConv
from torch_geometric.nn.aggr import MeanAggregation
from torch_geometric.nn.dense import Linear

from horovod_sylvie.comm.errors import PeerError
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.codec import Codec, FullPrecision
from horovod_sylvie.halo.convert import convert_model
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.halo.packed_codec import OneBit
from horovod_sylvie.halo.smaller_side import widths_around
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.on_partitions import run_on_partitions
from tests.halo.test_smaller_side import GRAPH, OneLayer, W, check_against_whole
from tests.reference_training import gather_rows


def message_hook(conv: MessagePassing) -> MessagePassing:
    conv.register_message_forward_hook(lambda conv, inputs, messages: messages.clamp(-0.1, 0.1))
    return conv


def aggregation_hook(conv: MessagePassing) -> MessagePassing:
    conv.aggr_module.register_forward_hook(lambda module, inputs, means: means.clamp(-0.1, 0.1))
    return conv


def step_hook(step: str) -> Callable[[], MessagePassing]:
    """Return a SAGEConv with a hook before or behind one of its steps."""

    def pre_hook(conv: MessagePassing, inputs: tuple) -> tuple:
        *others, kwargs = inputs
        key = next((key for key in kwargs if key in ("x", "x_j")), None)
        if key == "x":
            kwargs = {**kwargs, "x": tuple(one.square() for one in kwargs["x"])}
        elif key == "x_j":
            kwargs = {**kwargs, "x_j": kwargs["x_j"].square()}
        return (*others, kwargs)

    def make() -> MessagePassing:
        conv = SAGEConv(W, 3)
        register = getattr(conv, f"register_{step}_hook")
        register(pre_hook if "pre" in step else lambda conv, inputs, output: output.square())
        return conv

    return make


def replaced(step: str) -> Callable[[], MessagePassing]:
    """Return a SAGEConv in which a user put something in the place of a method."""

    def squares(self: SAGEConv, *args: object, **kwargs: object) -> Tensor:
        return getattr(SAGEConv, step)(self, *args, **kwargs).square()

    def make() -> MessagePassing:
        conv = SAGEConv(W, 3)
        setattr(conv, step, types.MethodType(squares, conv))
        return conv

    return make


def replaced_by_function() -> MessagePassing:
    conv = SAGEConv(W, 3)
    conv.message = lambda x_j: x_j.square()
    return conv


def replaced_in_linear() -> MessagePassing:
    def squares(self: Linear, x: Tensor) -> Tensor:
        return x.square() @ self.weight.t()

    conv = GCNConv(W, 3)
    conv.lin.forward = types.MethodType(squares, conv.lin)
    return conv


# Products travel: whatever hooks see, they see behind the linear layer. Name: (make, columns).
NARROWING = {
    "hook on messages of GCN": (lambda: message_hook(GCNConv(W, 3)), 3),
    "hook on messages of GAT": (lambda: message_hook(GATConv(W, 3)), 3),
}
# Rows travel as they are.
KEPT = {
    "linear layer whose forward was replaced": replaced_in_linear,
    "hook on messages": lambda: message_hook(SAGEConv(W, 3)),
    "hook on the aggregation": lambda: aggregation_hook(SAGEConv(W, 3)),
    "hook before propagation": step_hook("propagate_forward_pre"),
    "hook behind propagation": step_hook("propagate_forward"),
    "hook before messages": step_hook("message_forward_pre"),
    "hook before aggregation": step_hook("aggregate_forward_pre"),
    "hook behind aggregation": step_hook("aggregate_forward"),
    "message replaced": replaced("message"),
    "message replaced by a function": replaced_by_function,
    "aggregate replaced": replaced("aggregate"),
    "update replaced": replaced("update"),
    "propagate replaced": replaced("propagate"),
}


@pytest.mark.parametrize("name", NARROWING)
def test_products_travel_where_hooks_are_behind_the_linear_layer(tmp_path: Path, name: str) -> None:
    make, num_columns = NARROWING[name]
    check_against_whole(make, num_columns, tmp_path, size=2)


@pytest.mark.parametrize("name", KEPT)
def test_rows_travel_where_something_would_see_products(tmp_path: Path, name: str) -> None:
    check_against_whole(KEPT[name], W, tmp_path, size=2)


def hook_on_convolution(conv: MessagePassing) -> None:
    conv.register_forward_pre_hook(lambda conv, args: None)


def hook_on_linear(conv: MessagePassing) -> None:
    linear_of(conv).register_forward_hook(lambda module, inputs, output: output)


def backward_hook_on_linear(conv: MessagePassing) -> None:
    linear_of(conv).register_full_backward_hook(lambda module, inputs, output: None)


def forward_replaced(conv: MessagePassing) -> None:
    conv.forward = types.MethodType(lambda self, *args, **kwargs: 0, conv)


def linear_wrapped(conv: MessagePassing) -> None:
    name = "lin_l" if isinstance(conv, SAGEConv) else "lin"
    setattr(conv, name, nn.Sequential(linear_of(conv)))  # as adapters wrap a layer


def linear_of(conv: MessagePassing) -> nn.Module:
    return conv.lin_l if isinstance(conv, SAGEConv) else conv.lin


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *[
            (kind, change)
            for kind in (GCNConv, GATConv, SAGEConv)
            for change in (hook_on_convolution, hook_on_linear, forward_replaced, linear_wrapped)
        ],
        (GCNConv, backward_hook_on_linear),
        (SAGEConv, message_hook),
        (SAGEConv, aggregation_hook),
    ],
)
def test_change_after_conversion_that_would_see_products_raises(
    tmp_path: Path, kind: type, change: Callable[[MessagePassing], object]
) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        model = convert_model(OneLayer(kind(W, 3)), HaloExchange(part, FullPrecision(), comm=comm))
        model(part.x, part.edge_index)
        change(model.conv)
        with pytest.raises(
            RuntimeError,
            match=rf"'conv': expected this {kind.__name__}, .* as they were in convert_model, got "
            r"hooks, .* before convert_model, on every rank, or use .*smaller_side=False",
        ):
            model(part.x, part.edge_index)
        rows_travel = convert_model(
            OneLayer(kind(W, 3)), HaloExchange(part, FullPrecision(), smaller_side=False, comm=comm)
        )
        hook_on_linear(rows_travel.conv)
        rows_travel(part.x, part.edge_index)

    run_on_partitions(GRAPH, tmp_path, 1, body)


def test_convolution_that_is_being_explained_widths_around() -> None:
    conv = SAGEConv(W, 3)
    conv.explain = True  # PyG puts a method of its own in the convolution, which scales messages
    assert "propagate" in vars(conv)
    assert widths_around(conv)
    conv.explain_message = types.MethodType(lambda self, messages, dim_size: messages, conv)
    assert not widths_around(conv)


def test_hooks_that_are_not_given_products_may_come_after_conversion(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        model = convert_model(
            OneLayer(GCNConv(W, 3)), HaloExchange(part, FullPrecision(), comm=comm)
        )
        widths: list[int] = []
        model.conv.register_forward_pre_hook(
            lambda conv, args: widths.append(args[0].shape[1]), prepend=True
        )
        message_hook(model.conv)
        model(part.x, part.edge_index)
        assert widths == [W]

    run_on_partitions(GRAPH, tmp_path, 1, body)


@pytest.mark.parametrize("change", [hook_on_linear, message_hook])
def test_hook_on_one_rank_only_is_refused_on_every_rank(
    tmp_path: Path, change: Callable[[MessagePassing], object]
) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> bool:
        model = nn.ModuleList([SAGEConv(W, 3), SAGEConv(W, 3)])
        if comm.rank == 1:
            change(model[1])
        with pytest.raises(
            PeerError,
            match=r"the ranks differ in layers whose products travel \(rank 0: 0, 1; rank 1: 0\). "
            "Register hooks on a layer on every rank or on none",
        ):
            convert_model(model, HaloExchange(part, FullPrecision(), comm=comm))
        assert not model[0]._forward_pre_hooks
        assert type(model[0].lin_l) is Linear
        convert_model(model, HaloExchange(part, smaller_side=False, comm=comm))
        return True

    assert run_on_partitions(GRAPH, tmp_path, 2, body) == [True, True]


@pytest.mark.parametrize("codec", [FullPrecision(), OneBit()], ids=["full", "one bit"])
@pytest.mark.parametrize("kind", [GCNConv, GATConv, SAGEConv])
def test_under_autocast_results_have_the_plain_layers_dtype(
    tmp_path: Path, kind: type, codec: Codec
) -> None:
    model = OneLayer(kind(64, 3), 64)
    copies = [copy.deepcopy(model) for _ in range(2)]
    x, edges = torch.from_numpy(GRAPH.x), torch.from_numpy(GRAPH.message_edges()[0]).long()
    with torch.autocast("cpu", torch.bfloat16):
        expected = model(x, edges)

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, codec, comm=comm)
        local = convert_model(copies[comm.rank], halo)
        assert halo.parts.formats.products == {"conv": 64}
        with torch.autocast("cpu", torch.bfloat16):
            out = local(part.x, part.edge_index)
            with torch.no_grad():
                evaluated = local(part.x, part.edge_index)
        assert out.dtype == evaluated.dtype == expected.dtype
        out.float().square().sum().backward()
        assert all(p.grad is not None and p.grad.dtype == p.dtype for p in local.parameters())
        whole = gather_rows(comm, part, evaluated.float())
        torch.testing.assert_close(whole, expected.detach().float(), rtol=0.03, atol=0.03)

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_under_autocast_products_are_aggregated_in_the_dtype_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtypes: list[torch.dtype] = []
    forward = MeanAggregation.forward

    def recorded(self: MeanAggregation, x: Tensor, *args: object, **kwargs: object) -> Tensor:
        dtypes.append(x.dtype)
        return forward(self, x, *args, **kwargs)

    monkeypatch.setattr(MeanAggregation, "forward", recorded)

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        model = convert_model(
            OneLayer(SAGEConv(W, 3)), HaloExchange(part, FullPrecision(), comm=comm)
        )
        rows = part.x @ model.first.weight.detach().t()
        for dtype in (torch.float32, torch.bfloat16):
            dtypes.clear()
            with torch.autocast("cpu", torch.bfloat16):
                out = model.conv(rows.to(dtype).requires_grad_(), part.edge_index)
            assert out.dtype == torch.bfloat16
            assert set(dtypes) == {dtype}

    run_on_partitions(GRAPH, tmp_path, 1, body)
