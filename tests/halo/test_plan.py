"""Who sends which rows to whom, against a graph drawn by hand and a slow oracle in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from horovod_sylvie.halo.plan import HaloPlan, MessageLayout, Route
from horovod_sylvie.partition.graph import Graph
from horovod_sylvie.partition.loader import load_partition
from horovod_sylvie.partition.partitioner import partition_graph
from tests.reference_training import make_graph

# Seven nodes, cut by "contiguous" into ranks 0 = {0, 1, 2}, 1 = {3, 4}, 2 = {5, 6}.
# An arrow is a directed edge; its source is read by the rank that owns its target.
#
#     0 --> 3      0 --> 5      2 --> 3      2 --> 6
#     4 --> 1      3 --> 4      6 --> 0      6 --> 5
#
# Halo nodes by reader            rows sent, from rank (down) to rank (across)
#   rank 0: 4 (of 1), 6 (of 2)            0        1        2
#   rank 1: 0, 2 (of 0)             0     -     0, 2     0, 2
#   rank 2: 0, 2 (of 0)             1     4        -        -
#                                   2     6        -        -
DRAWN_EDGES = [(0, 3), (0, 5), (2, 3), (2, 6), (4, 1), (3, 4), (6, 0), (6, 5)]
HALO_IDS = [[4, 6], [0, 2], [0, 2]]
SENT_IDS = [[0, 2, 0, 2], [4], [6]]
SEND_SPLITS = [(0, 2, 2), (1, 0, 0), (1, 0, 0)]
RECV_SPLITS = [(0, 1, 1), (2, 0, 0), (2, 0, 0)]


@pytest.fixture
def drawn_plans(tmp_path: Path) -> list[HaloPlan]:
    graph = Graph(
        num_nodes=7,
        edge_index=np.array(DRAWN_EDGES).T,
        x=np.zeros((7, 1), np.float32),
        y=np.zeros(7, np.int64),
        train_mask=np.ones(7, bool),
        val_mask=np.zeros(7, bool),
        test_mask=np.zeros(7, bool),
    )
    partition_graph(graph, tmp_path / "parts", 3, method="contiguous")
    partitions = [load_partition(tmp_path / "parts", rank, 3) for rank in range(3)]
    assert [part.inner_ids.tolist() for part in partitions] == [[0, 1, 2], [3, 4], [5, 6]]
    assert [part.halo_ids.tolist() for part in partitions] == HALO_IDS
    return [HaloPlan.from_partition(part) for part in partitions]


def test_plan_of_drawn_graph_is_the_split_table(drawn_plans: list[HaloPlan]) -> None:
    first_inner = [0, 3, 5]
    for rank, plan in enumerate(drawn_plans):
        assert (plan.rank, plan.size, plan.num_halo) == (rank, 3, 2)
        assert (plan.send_index + first_inner[rank]).tolist() == SENT_IDS[rank]
        assert (plan.forward.send_splits, plan.forward.recv_splits) == (
            SEND_SPLITS[rank],
            RECV_SPLITS[rank],
        )


def test_forward_route_names_each_distinct_row_once(drawn_plans: list[HaloPlan]) -> None:
    forward = drawn_plans[0].forward
    assert forward.unique_rows is not None
    assert forward.unique_rows.tolist() == [0, 2]
    assert forward.expand.tolist() == [0, 1, 0, 1]
    assert forward.num_unique == 2


def test_plans_of_one_partitioning_share_the_digest(drawn_plans: list[HaloPlan]) -> None:
    assert len({plan.digest for plan in drawn_plans}) == 1


@pytest.mark.parametrize("method", ["metis", "random", "contiguous"])
@pytest.mark.parametrize("num_parts", [1, 2, 3, 4])
def test_routes_forward_and_backward_are_inverse(
    tmp_path: Path, num_parts: int, method: str
) -> None:
    partition_graph(make_graph(num_nodes=60), tmp_path / "parts", num_parts, method=method)
    parts = [load_partition(tmp_path / "parts", rank, num_parts) for rank in range(num_parts)]
    plans = [HaloPlan.from_partition(part) for part in parts]
    for plan in plans:
        assert plan.backward.send_splits == plan.forward.recv_splits
        assert plan.backward.recv_splits == plan.forward.send_splits
        assert plan.backward.unique_rows is None
        assert plan.backward.expand.tolist() == list(range(plan.num_halo))
        assert plan.forward.unique_rows is not None
        assert torch.equal(plan.forward.unique_rows[plan.forward.expand], plan.send_index)
    for receiver, part in enumerate(parts):  # what arrives, sender by sender, is the halo
        arriving = [
            sender.inner_ids[plan.send_index.split(list(plan.forward.send_splits))[receiver]]
            for sender, plan in zip(parts, plans, strict=True)
        ]
        assert torch.equal(torch.cat(arriving), part.halo_ids)


def oracle_layout(route: Route, header_rows: int) -> dict[str, list]:
    """Walk over all messages, row by row."""
    send_slots, source_slots, send_headers = [], [], []
    row = 0
    for peer, num_rows in enumerate(route.send_splits):
        if peer == route.rank:
            continue
        send_headers.append(list(range(len(send_slots), len(send_slots) + header_rows)))
        send_slots += [route.num_unique + i for i in range(header_rows)]
        source_slots += [0] * header_rows
        for position in route.expand[row : row + num_rows].tolist():
            send_slots.append(position)
            unique = route.unique_rows
            source_slots.append(position if unique is None else int(unique[position]))
        row += num_rows
    recv_headers, recv_rows, arrived = [], [], 0
    for peer, num_rows in enumerate(route.recv_splits):
        if peer == route.rank:
            continue
        recv_headers.append(list(range(arrived, arrived + header_rows)))
        recv_rows += list(range(arrived + header_rows, arrived + header_rows + num_rows))
        arrived += header_rows + num_rows
    return {
        "send_slots": send_slots,
        "source_slots": source_slots,
        "send_header_slots": send_headers,
        "recv_header_slots": recv_headers,
        "recv_row_slots": recv_rows,
    }


@st.composite
def routes(draw: st.DrawFn) -> Route:
    """Draw splits with zeros, and rows that go to several receivers."""
    size = draw(st.integers(1, 5))
    rank = draw(st.integers(0, size - 1))
    splits = st.lists(st.integers(0, 4), min_size=size, max_size=size)
    send, recv = draw(splits), draw(splits)
    send[rank] = recv[rank] = 0
    if draw(st.booleans()):
        order = torch.arange(sum(send))
        return Route(rank, None, order, tuple(send), tuple(recv))
    picked = draw(st.lists(st.integers(0, 6), min_size=sum(send), max_size=sum(send)))
    unique, expand = torch.unique(torch.tensor(picked, dtype=torch.int64), return_inverse=True)
    return Route(rank, unique, expand, tuple(send), tuple(recv))


@given(route=routes(), header_rows=st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_layout_equals_slow_oracle(route: Route, header_rows: int) -> None:
    layout = MessageLayout.of(route, header_rows)
    for field, expected in oracle_layout(route, header_rows).items():
        assert getattr(layout, field).tolist() == expected, field
        assert getattr(layout, field).dtype == torch.int64
    for splits, plain in (
        (layout.send_splits, route.send_splits),
        (layout.recv_splits, route.recv_splits),
    ):
        assert splits == tuple(
            0 if peer == route.rank else rows + header_rows for peer, rows in enumerate(plain)
        )


@given(route=routes(), header_rows=st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_layout_gives_each_row_to_one_header_or_one_data_row(
    route: Route, header_rows: int
) -> None:
    layout = MessageLayout.of(route, header_rows)
    received = torch.cat([layout.recv_header_slots.flatten(), layout.recv_row_slots])
    assert sorted(received.tolist()) == list(range(sum(layout.recv_splits)))
    headers = layout.send_header_slots.flatten()
    assert len(set(headers.tolist())) == len(headers) == (route.size - 1) * header_rows
    is_header = layout.send_slots >= route.num_unique
    assert torch.equal(is_header.nonzero().flatten(), headers)
    assert len(layout.send_slots) == sum(layout.send_splits)


def test_layout_of_rank_without_rows_is_headers_only() -> None:
    nothing = torch.empty(0, dtype=torch.int64)
    layout = MessageLayout.of(Route(1, nothing, nothing, (0, 0, 0), (0, 0, 0)), 2)
    assert layout.send_splits == layout.recv_splits == (2, 0, 2)
    assert layout.send_slots.tolist() == [0, 1, 0, 1]
    assert layout.recv_row_slots.tolist() == []
    assert layout.recv_header_slots.tolist() == [[0, 1], [2, 3]]
