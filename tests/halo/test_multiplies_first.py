"""A SAGE layer that makes rows narrower multiplies them before it aggregates them."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, MessagePassing, SAGEConv
from torch_geometric.nn.aggr import MeanAggregation

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.codec import Codec, FullPrecision
from horovod_sylvie.halo.convert import convert_model
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.halo.packed_codec import OneBit
from horovod_sylvie.halo.smaller_side import multiplies_last
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.on_partitions import run_on_partitions
from tests.reference_training import NUM_FEATURES, gather_rows, make_graph

GRAPH = make_graph(num_nodes=40)


class TwoLayers(nn.Module):
    """Features, which are kept, to 6 columns, and those, which travel, to 3."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(NUM_FEATURES, 6), SAGEConv(6, 3)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


@pytest.fixture
def aggregated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Columns of what is aggregated, call by call."""
    columns: list[int] = []
    forward = MeanAggregation.forward

    def recorded(self: MeanAggregation, x: Tensor, *args: object, **kwargs: object) -> Tensor:
        columns.append(x.shape[1])
        return forward(self, x, *args, **kwargs)

    monkeypatch.setattr(MeanAggregation, "forward", recorded)
    return columns


@pytest.mark.parametrize("codec", [FullPrecision(), OneBit()])  # products travel, and rows
def test_kept_and_received_rows_are_multiplied_first(
    tmp_path: Path, aggregated: list[int], codec: Codec
) -> None:
    whole = TwoLayers()
    copies = [copy.deepcopy(whole) for _ in range(2)]
    x, edges = torch.from_numpy(GRAPH.x), torch.from_numpy(GRAPH.message_edges()[0]).long()
    expected = whole(x, edges).detach()
    assert aggregated == [NUM_FEATURES, 6]
    aggregated.clear()

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        model = convert_model(
            copies[comm.rank], HaloExchange(part, codec, overlap=False, comm=comm)
        )
        model(part.x, part.edge_index).square().sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        with torch.no_grad():
            out = model.eval()(part.x, part.edge_index)  # in full precision
        torch.testing.assert_close(gather_rows(comm, part, out), expected)

    run_on_partitions(GRAPH, tmp_path, 2, body)
    assert sorted(aggregated) == 4 * [3] + 4 * [6]


def test_switched_off_rows_are_aggregated_as_they_are(
    tmp_path: Path, aggregated: list[int]
) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, FullPrecision(), overlap=False, smaller_side=False, comm=comm)
        convert_model(TwoLayers(), halo)(part.x, part.edge_index)

    run_on_partitions(GRAPH, tmp_path, 1, body)
    assert aggregated == [NUM_FEATURES, 6]


@pytest.mark.parametrize(
    ("convolution", "expected"),
    [
        (SAGEConv(8, 3), True),
        (SAGEConv(8, 8), False),
        (SAGEConv(3, 8), False),
        (SAGEConv(8, 3, aggr="max"), False),
        (SAGEConv(8, 3, project=True), False),
        (GCNConv(8, 3), False),  # multiplies first by itself
    ],
)
def test_only_layers_that_multiply_last_and_become_narrower(
    convolution: MessagePassing, expected: bool
) -> None:
    assert multiplies_last(convolution) is expected
