"""What convert_model, and a converted model when called, refuse, with the reason and the cure."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor, nn
from torch_geometric import nn as pyg_nn

from horovod_sylvie.comm.errors import PeerError
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.convert import convert_model
from horovod_sylvie.halo.delta import Delta
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.halo.packed_codec import OneBit
from horovod_sylvie.halo.staleness import BoundedStaleness, Pipelined
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.on_partitions import run_on_partitions
from tests.reference_training import NUM_FEATURES, Network, make_graph

GRAPH = make_graph(num_nodes=40, weighted=True)
D = NUM_FEATURES


class OwnBatchNorm(nn.BatchNorm1d):
    """A BatchNorm that does something else."""

    def forward(self, input: Tensor) -> Tensor:
        return input


class TwoHops(pyg_nn.MessagePassing):
    """A convolution that a user wrote, of two hops."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.propagate(edge_index, x=x))


class TwoRows(pyg_nn.MessagePassing):
    """A convolution that a user wrote, with a second row per node."""

    def forward(self, x: Tensor, edge_index: Tensor, z: Tensor | None = None) -> Tensor:
        return self.propagate(edge_index, x=x if z is None else x + z)


class OneHopInside(pyg_nn.MessagePassing):
    """A convolution that holds another one."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = pyg_nn.SAGEConv(D, D)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.inside(x, edge_index))


def on_one_rank(folder: Path, body: Callable[[HaloExchange, Partition], None]) -> None:
    def run(comm: LoopbackCommunicator, part: Partition) -> None:
        body(HaloExchange(part, comm=comm), part)

    run_on_partitions(GRAPH, folder, 1, run)


REFUSED = {
    "GraphNorm": (lambda: pyg_nn.GraphNorm(D), "works over all nodes.*; use torch.nn.BatchNorm1d"),
    "PairNorm": (lambda: pyg_nn.PairNorm(), "works over all nodes.*; use torch.nn.LayerNorm"),
    "InstanceNorm": (lambda: pyg_nn.InstanceNorm(D), "works over all nodes"),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(D), "works over all nodes"),
    "DiffGroupNorm": (lambda: pyg_nn.DiffGroupNorm(D, 2), "works over all nodes"),
    "GraphSizeNorm": (lambda: pyg_nn.GraphSizeNorm(), "works over all nodes"),
    "MeanSubtractionNorm": (lambda: pyg_nn.MeanSubtractionNorm(), "works over all nodes"),
    "LayerNorm": (lambda: pyg_nn.LayerNorm(D), r"use LayerNorm\(mode='node'\)"),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(D, 2), "use GATConv, which attends to"),
    "SumAggregation": (lambda: pyg_nn.SumAggregation(), "aggregates over all nodes of a graph"),
    "BatchNorm": (
        lambda: pyg_nn.BatchNorm(D, allow_single_element=True),
        "construct it with allow_single_element=False",
    ),
    "OwnBatchNorm": (lambda: OwnBatchNorm(D), "its forward is its own"),
    "SAGEConv": (lambda: pyg_nn.SAGEConv(D, D, flow="target_to_source"), "use flow='source_to_ta"),
    "LGConv": (lambda: pyg_nn.LGConv(), "construct it with normalize=False"),
    "GeneralConv": (lambda: with_cache(pyg_nn.GeneralConv(D, D)), "with cached=False"),
    "SGConv": (lambda: pyg_nn.SGConv(D, D), "several hops"),
}
REFUSED_INSIDE = {
    "a BatchNorm that would see halo rows": (
        lambda: pyg_nn.EdgeConv(nn.Sequential(nn.Linear(2 * D, D), nn.BatchNorm1d(D))),
        "'1.nn.1' (BatchNorm1d): it would count halo rows",
    ),
    "a convolution": (lambda: OneHopInside(), "'1.inside' (SAGEConv): it is a convolution inside"),
    "an aggregation that pads": (
        lambda: pyg_nn.SAGEConv(D, D, aggr="lstm"),
        "'1.aggr_module' (LSTMAggregation): it pads every node's in-edges to the longest list",
    ),
    "attention": (
        lambda: pyg_nn.GINConv(nn.MultiheadAttention(D, 2)),
        "'1.nn' (MultiheadAttention): it works over all nodes",
    ),
}


def with_cache(module: nn.Module) -> nn.Module:
    module.cached = True
    return module


def refused_model(module: nn.Module) -> nn.Module:
    """Return a model that would be changed in all its parts if it were converted."""
    return nn.Sequential(pyg_nn.GCNConv(D, D), module, nn.BatchNorm1d(D), pyg_nn.SAGEConv(D, D))


def hooks_of(model: nn.Module) -> list[int]:
    return [
        len(hooks)
        for module in model.modules()
        for hooks in (
            module._forward_pre_hooks,
            module._forward_hooks,
            getattr(module, "_propagate_forward_pre_hooks", {}),
        )
    ]


@pytest.mark.parametrize("name", REFUSED)
def test_module_that_would_be_wrong_is_refused_by_name(tmp_path: Path, name: str) -> None:
    make, reason = REFUSED[name]

    def body(halo: HaloExchange, part: Partition) -> None:
        model = refused_model(make())
        with pytest.raises(TypeError, match=rf"^convert_model: .*; '1' \({name}\): .*{reason}"):
            convert_model(model, halo)

    on_one_rank(tmp_path, body)


@pytest.mark.parametrize("name", REFUSED_INSIDE)
def test_module_inside_a_convolution_is_refused(tmp_path: Path, name: str) -> None:
    make, reason = REFUSED_INSIDE[name]

    def body(halo: HaloExchange, part: Partition) -> None:
        with pytest.raises(TypeError, match=re.escape(reason)):
            convert_model(refused_model(make()), halo)

    on_one_rank(tmp_path, body)


def test_refusal_names_every_problem_and_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    def body(halo: HaloExchange, part: Partition) -> None:
        model = refused_model(nn.Sequential(pyg_nn.GraphNorm(D), pyg_nn.SGConv(D, D)))
        modules, hooks = dict(model.named_modules()), hooks_of(model)
        with pytest.raises(TypeError, match=r"'1\.0' \(GraphNorm\).*; '1\.1' \(SGConv\)"):
            convert_model(model, halo)
        assert dict(model.named_modules()) == modules
        assert hooks_of(model) == hooks
        assert model[0].normalize
        model[1] = nn.Identity()
        convert_model(model, halo)  # and once it is repaired, it converts
        assert not model[0].normalize
        assert hooks_of(model) != hooks

    on_one_rank(tmp_path, body)


def test_model_that_is_converted_is_refused(tmp_path: Path) -> None:
    def body(halo: HaloExchange, part: Partition) -> None:
        model = convert_model(Network("sage", batch_norm=True), halo)
        hooks = hooks_of(model)
        for again in (model, copy.deepcopy(model)):
            with pytest.raises(ValueError, match="an unconverted 'model'; 'convs.0' is converted"):
                convert_model(again, halo)
        assert hooks_of(model) == hooks

    on_one_rank(tmp_path, body)


@pytest.mark.parametrize(
    "options",
    [
        {"staleness": Pipelined()},
        {"staleness": BoundedStaleness()},
        {"codec": Delta(OneBit("centroid"))},
    ],
    ids=["pipelined", "bounded", "changes"],
)
def test_second_model_on_an_exchange_that_keeps_rows_is_refused(tmp_path: Path, options) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, comm=comm, **options)
        convert_model(Network("sage", batch_norm=True), halo)
        model = Network("sage", batch_norm=True)
        hooks = hooks_of(model)
        with pytest.raises(
            ValueError,
            match=r"convert_model: expected a 'halo' without a model, .* \(.*\), got one .* with "
            "that one's rows. Make one HaloExchange per model, each with its own 'name'",
        ):
            convert_model(model, halo)
        assert hooks_of(model) == hooks
        convert_model(model, HaloExchange(part, comm=comm, name="second", **options))

    run_on_partitions(GRAPH, tmp_path, 1, body)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: nn.Linear(2, 2), "a torch_geometric MessagePassing layer, got Linear with none"),
        (lambda: nn.BatchNorm1d(2), "got BatchNorm1d with none"),
        (
            lambda: pyg_nn.GraphSAGE(-1, 4, 2),
            "an initialised 'model'; 'convs.0.lin_l.weight' has no shape yet. Construct it with",
        ),
    ],
)
def test_model_that_cannot_be_converted_raises(tmp_path: Path, make, text: str) -> None:
    def body(halo: HaloExchange, part: Partition) -> None:
        with pytest.raises(ValueError, match=re.escape(text)):
            convert_model(make(), halo)

    on_one_rank(tmp_path, body)


@pytest.mark.parametrize(
    "make",
    [
        lambda rank: pyg_nn.GraphSAGE(D, 8 + rank, 2, 4),
        lambda rank: pyg_nn.GraphSAGE(D, 8, 2 + rank, 4),
        lambda rank: [pyg_nn.GraphSAGE, pyg_nn.GCN][rank](D, 8, 2, 4),
        lambda rank: Network("sage", batch_norm=bool(rank)),
    ],
    ids=["width", "depth", "class", "norm"],
)
def test_ranks_with_different_models_all_raise(tmp_path: Path, make) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> int:
        model = make(comm.rank)
        hooks = hooks_of(model)
        with pytest.raises(
            PeerError, match=rf"rank {comm.rank}: the ranks differ in model \(rank "
        ):
            convert_model(model, HaloExchange(part, comm=comm))
        assert hooks_of(model) == hooks
        return comm.rank

    assert run_on_partitions(GRAPH, tmp_path, 2, body) == [0, 1]


def sage() -> nn.Module:
    return pyg_nn.SAGEConv(D, 4)


@pytest.mark.parametrize(
    ("make", "arguments", "error", "text"),
    [
        (sage, lambda p: ((p.x, p.x), p.edge_index), TypeError, "one tensor of inner rows for 'x'"),
        (sage, lambda p: (p.x, p.edge_index.to_sparse()), TypeError, "Sparse adjacency matrices"),
        (sage, lambda p: (p.x, None), TypeError, "edge_index [2, E] for 'edge_index', got NoneTy"),
        (sage, lambda p: (p.x, p.edge_index, (4, 4)), ValueError, "expected None for 'size', got"),
        (sage, lambda p: (p.x[1:], p.edge_index), ValueError, "got 39 rows"),
        (sage, lambda p: (p.x, p.edge_index, None, p.x), TypeError, "too many positional argumen"),
        (sage, lambda p: (p.x,), TypeError, "missing a required argument: 'edge_index'"),
        (TwoRows, lambda p: (p.x, p.edge_index, p.x), ValueError, "expected None for 'z', got Ten"),
        (TwoHops, lambda p: (p.x, p.edge_index), TypeError, "propagates more than once in one"),
    ],
)
def test_call_that_would_be_wrong_raises(tmp_path: Path, make, arguments, error, text) -> None:
    def body(halo: HaloExchange, part: Partition) -> None:
        layer = convert_model(make(), halo)
        with pytest.raises(error, match=re.escape(text)):
            layer(*arguments(part))

    on_one_rank(tmp_path, body)


@pytest.mark.parametrize(
    ("edges", "weight", "text"),
    [
        (
            lambda p: p.edge_index.clone(),
            lambda p: p.edge_weight,
            "partition.edge_index for 'edge_",
        ),
        (lambda p: p.edge_index[:, 1:], lambda p: p.edge_weight[1:], "got other edges, whose glob"),
        (lambda p: p.edge_index, lambda p: None, "partition.edge_weight for 'edge_weight'"),
        (lambda p: p.edge_index, lambda p: 2 * p.edge_weight, "partition.edge_weight for 'edge_w"),
    ],
)
def test_normalising_convolution_on_other_edges_raises(tmp_path: Path, edges, weight, text) -> None:
    def body(halo: HaloExchange, part: Partition) -> None:
        layer = convert_model(pyg_nn.GCNConv(D, 4), halo)
        with pytest.raises(ValueError, match=text):
            layer(part.x, edges(part), weight(part))
        assert layer(part.x, part.edge_index, part.edge_weight).shape == (40, 4)

    on_one_rank(tmp_path, body)
