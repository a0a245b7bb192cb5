"""What ranks tell each other when bits are planned."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.bit_tables import BitTables, exchange_bits, receiver_weights
from horovod_sylvie.halo.plan import HaloPlan, Route
from horovod_sylvie.partition.graph import Graph
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.on_partitions import WatchedCommunicator, run_on_partitions, small_graph
from tests.reference_training import make_graph

GRAPH = make_graph(num_nodes=40)
WEIGHTED = make_graph(num_nodes=40, weighted=True, directed=True)
# Nodes 0 to 3 cut by "contiguous" into five ranks, one of which owns nothing.
RING = small_graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], 4)


def bits_of_node(ids: Tensor, slot: int) -> Tensor:
    """Return bits that say the node, and differ from slot to slot."""
    return 2 ** ((ids + slot) % 4).to(torch.uint8)


@pytest.mark.parametrize("graph", [GRAPH, RING])
@pytest.mark.parametrize("num_slots", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_receivers_know_the_bits_of_their_rows(
    tmp_path: Path, size: int, num_slots: int, graph: Graph
) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        plan = HaloPlan.from_partition(part)
        assert plan.forward.unique_rows is not None
        boundary = part.inner_ids[plan.forward.unique_rows]
        for route, sent_ids, received_ids in (
            (plan.forward, boundary, part.halo_ids),
            (plan.backward, part.halo_ids, part.inner_ids[plan.send_index]),
        ):
            columns = [bits_of_node(sent_ids, slot) for slot in range(num_slots)]
            received = exchange_bits(comm, route, columns, name="bits")
            assert len(received) == num_slots
            for slot, table in enumerate(received):
                assert table.dtype == torch.uint8 and table.is_contiguous()
                assert torch.equal(table, bits_of_node(received_ids, slot))

    run_on_partitions(graph, tmp_path, size, body, method="contiguous")


class NoCommunicator(LoopbackCommunicator):
    """One rank that must not communicate."""

    def __init__(self, size: int) -> None:
        self._rank, self._world_size = 0, size

    @property
    def size(self) -> int:
        return self._world_size

    def alltoall(self, *args, **kwargs):
        raise AssertionError("nothing is to be sent")


def test_no_slots_and_single_ranks_send_nothing() -> None:
    nothing = torch.empty(0, dtype=torch.int64)
    alone = Route(0, nothing, nothing, (0,), (0,))
    empty = torch.empty(0, dtype=torch.uint8)
    found = exchange_bits(NoCommunicator(1), alone, [empty, empty], name="bits")
    assert [(table.dtype, tuple(table.shape)) for table in found] == [(torch.uint8, (0,))] * 2
    some = Route(0, None, torch.arange(3), (0, 3), (0, 3))
    assert exchange_bits(NoCommunicator(2), some, [], name="bits") == []


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (torch.ones(2, dtype=torch.uint8), r"each of 3 rows for 'columns', got torch.uint8 \(2,\)"),
        (torch.ones(3), r"for 'columns', got torch.float32 \(3,\). Give a uint8 tensor \[3\]"),
        (torch.tensor([1, 8, 0], dtype=torch.uint8), "for 'columns', got 0 for row 2"),
    ],
)
def test_column_that_is_no_table_raises_before_anything_is_sent(column: Tensor, text: str) -> None:
    route = Route(0, None, torch.arange(3), (0, 3), (0, 3))
    with pytest.raises(ValueError, match="^exchange_bits: expected 1, 2, 4 or 8 .*" + text):
        exchange_bits(NoCommunicator(2), route, [column], name="bits")


@pytest.mark.parametrize("value", [0, 3, 255])
def test_damaged_table_names_the_rank_that_sent_it(tmp_path: Path, value: int) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        plan = HaloPlan.from_partition(part)
        splits = plan.forward.recv_splits
        row = splits[0] + 1 if comm.rank == 1 else 0  # the second row that rank 2 sends
        assert comm.rank != 1 or splits[2] > 1

        def damage(name: str, rows: Tensor) -> None:
            if comm.rank == 1:
                rows[row, 1] = value

        watched = WatchedCommunicator(comm, received=damage)
        columns = [torch.ones(plan.forward.num_unique, dtype=torch.uint8)] * 2
        if comm.rank != 1:
            exchange_bits(watched, plan.forward, columns, name="bits")  # type: ignore[arg-type]
            return
        with pytest.raises(ValueError, match=f"got {value} for row {row} of slot 1 from rank 2. T"):
            exchange_bits(watched, plan.forward, columns, name="bits")  # type: ignore[arg-type]

    run_on_partitions(GRAPH, tmp_path, 3, body)


def mean_weights(part: Partition) -> Tensor:
    ones = torch.ones(part.edge_index.shape[1])
    weight = ones if part.edge_weight is None else part.edge_weight
    return weight / part.in_weight[part.edge_index[1]].clamp(min=1e-6)


@pytest.mark.parametrize("graph", [GRAPH, WEIGHTED, RING])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_receiver_weights_are_sums_over_edges_that_leave_the_rank(
    tmp_path: Path, size: int, graph: Graph
) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> tuple[Tensor, Tensor, list]:
        plan = HaloPlan.from_partition(part)
        weight = mean_weights(part)
        found = receiver_weights(comm, plan, part.edge_index, weight)
        assert found.dtype == torch.float64
        assert plan.forward.unique_rows is not None
        ids = torch.cat([part.inner_ids, part.halo_ids])
        source, target = ids[part.edge_index]
        edges = list(zip(source.tolist(), target.tolist(), weight.tolist(), strict=True))
        return part.inner_ids[plan.forward.unique_rows], found, edges

    results = run_on_partitions(graph, tmp_path, size, body, method="contiguous")
    for rank, (ids, found, _) in enumerate(results):
        expected = dict.fromkeys(ids.tolist(), 0.0)
        for reader, (_, _, edges) in enumerate(results):
            for source, _, weight in edges:
                if reader != rank and source in expected:
                    expected[source] += weight**2
        assert all(value > 0 for value in expected.values())  # some rank reads every boundary row
        wanted = torch.tensor(list(expected.values()), dtype=torch.float64)
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0.0)


def test_receiver_weights_by_hand(tmp_path: Path) -> None:
    # Ranks own {0}, {1}, {2} and {3}: node 0 is read by 1 and 2, node 1 by 2, 2 by 3, 3 by 0.
    # Node 2 has two in-edges, so they count half each; the others have one.
    def body(comm: LoopbackCommunicator, part: Partition) -> list[float]:
        plan = HaloPlan.from_partition(part)
        return receiver_weights(comm, plan, part.edge_index, mean_weights(part)).tolist()

    assert run_on_partitions(RING, tmp_path, 4, body, method="contiguous") == [
        [1.25],
        [0.25],
        [1.0],
        [1.0],
    ]


@pytest.mark.parametrize(
    ("edge_index", "weight"),
    [
        (torch.zeros(2, 3, dtype=torch.int64), torch.ones(2)),
        (torch.zeros(3, 3, dtype=torch.int64), torch.ones(3)),
        (torch.zeros(2, 3, dtype=torch.int64), torch.ones(3, 1)),
    ],
)
def test_shapes_that_do_not_fit_raise(tmp_path: Path, edge_index: Tensor, weight: Tensor) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        with pytest.raises(ValueError, match=r"receiver_weights: expected one number per edge"):
            receiver_weights(comm, HaloPlan.from_partition(part), edge_index, weight)

    run_on_partitions(RING, tmp_path, 1, body)


def test_tables_are_frozen() -> None:
    tables = BitTables(3, torch.ones(2, dtype=torch.uint8), torch.ones(1, dtype=torch.uint8))
    with pytest.raises(AttributeError):
        tables.version = 4  # type: ignore[misc]
