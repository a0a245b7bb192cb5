"""Splitting edges by target: an example by hand, properties, and what is kept of it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from horovod_sylvie.halo.subgraphs import SplitGraph, SplitGraphs, Subgraph, split_by_target

# Inner rows 0 to 3, halo rows 4 and 5. Row 1 reads halo row 4, and row 3 reads halo row 5.
EDGES = torch.tensor([[2, 4, 1, 0, 5, 0], [0, 1, 0, 3, 3, 2]])


def test_example_by_hand() -> None:
    split = split_by_target(EDGES, 4, 2)
    assert split is not None
    interior, marginal = split.interior, split.marginal
    assert interior.targets.tolist() == [0, 2]
    assert interior.nodes.tolist() == [0, 2, 1]
    assert interior.edges.tolist() == [0, 2, 5]
    assert interior.edge_index.tolist() == [[1, 2, 0], [0, 0, 1]]
    assert marginal.targets.tolist() == [1, 3]
    assert marginal.nodes.tolist() == [1, 3, 0]  # halo rows 4 and 5 follow, as 3 and 4
    assert marginal.edges.tolist() == [1, 3, 4]
    assert marginal.edge_index.tolist() == [[3, 2, 4], [0, 1, 1]]
    assert split.order.tolist() == [0, 2, 1, 3]


def test_rows_are_joined_in_the_order_of_the_inner_rows() -> None:
    split = split_by_target(EDGES, 4, 2)
    assert split is not None
    interior = torch.tensor([[0.0], [2.0], [-1.0]], requires_grad=True)  # the last is no target
    marginal = torch.tensor([[1.0], [3.0], [-1.0], [-1.0]], requires_grad=True)
    rows = split.join(interior, marginal)
    assert rows.tolist() == [[0.0], [1.0], [2.0], [3.0]]
    (rows * torch.tensor([[10.0], [11.0], [12.0], [13.0]])).sum().backward()
    assert interior.grad is not None and marginal.grad is not None
    assert interior.grad.flatten().tolist() == [10.0, 12.0, 0.0]
    assert marginal.grad.flatten().tolist() == [11.0, 13.0, 0.0, 0.0]


@st.composite
def local_edges(draw: st.DrawFn) -> tuple[Tensor, int, int]:
    num_inner, num_halo = draw(st.integers(1, 12)), draw(st.integers(0, 5))
    edge = st.tuples(st.integers(0, num_inner + num_halo - 1), st.integers(0, num_inner - 1))
    edges = draw(st.lists(edge, min_size=1, max_size=30))
    return torch.tensor(edges).T.contiguous(), num_inner, num_halo


def edges_of(part: Subgraph, num_inner: int, num_halo: int) -> Tensor:
    """Return a part's edges in the numbers of the whole."""
    rows = torch.cat([part.nodes, torch.arange(num_inner, num_inner + num_halo)])
    sources, targets = part.edge_index
    return torch.stack([rows[sources], part.targets[targets]])


@settings(deadline=None)
@given(local_edges())
def test_parts_are_the_whole(case: tuple[Tensor, int, int]) -> None:
    edge_index, num_inner, num_halo = case
    split = split_by_target(edge_index, num_inner, num_halo)
    reads_halo = set(edge_index[1, edge_index[0] >= num_inner].tolist())
    late = [target in reads_halo for target in edge_index[1].tolist()]
    if split is None:  # one part has no edge, or no row
        few = 0.05 * num_inner > num_inner - len(reads_halo)
        few_edges = 0.05 * len(late) > late.count(False)
        assert not reads_halo or few or few_edges
        return
    assert set(split.marginal.targets.tolist()) == reads_halo
    assert sorted(split.interior.targets.tolist() + split.marginal.targets.tolist()) == list(
        range(num_inner)
    )
    for part, halo in ((split.interior, 0), (split.marginal, num_halo)):
        assert torch.equal(edges_of(part, num_inner, halo), edge_index[:, part.edges])
        assert torch.equal(part.nodes[: len(part.targets)], part.targets)
        assert len(part.nodes.unique()) == len(part.nodes)
    assert split.marginal.edges.tolist() == [
        number for number, is_late in enumerate(late) if is_late
    ]
    assert sorted(split.interior.edges.tolist() + split.marginal.edges.tolist()) == list(
        range(len(late))
    )
    x = torch.randn(num_inner, 2, dtype=torch.float64)
    assert torch.equal(split.join(*split.targets(x)), x)
    assert torch.equal(split.join(*split.nodes(x)), x)  # the nodes begin with the targets


@settings(deadline=None)
@given(local_edges())
def test_gradients_are_those_of_plain_indexing(case: tuple[Tensor, int, int]) -> None:
    split = split_by_target(*case)
    if split is None:
        return
    one = torch.randn(case[1], 2, dtype=torch.float64, requires_grad=True)
    other = one.detach().clone().requires_grad_()
    factors = torch.arange(1.0, case[1] + 1)[:, None]
    interior, marginal = split.nodes(one)
    early, late = split.targets(one)
    joined = split.join(interior.exp(), marginal.sin()) * factors
    (joined.sum() + interior.square().sum() + (early**3).sum() + late.cos().sum()).backward()
    parts = (split.interior, split.marginal)
    interior, marginal = (other[part.nodes] for part in parts)
    early, late = (other[part.targets] for part in parts)
    joined = torch.cat([early.exp(), late.sin()])[split.order] * factors
    (joined.sum() + interior.square().sum() + (early**3).sum() + late.cos().sum()).backward()
    assert one.grad is not None and other.grad is not None
    torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize(
    ("edges", "num_inner", "num_halo"),
    [
        ([[0, 1], [1, 0]], 2, 0),  # no marginal row
        ([[2, 2], [1, 0]], 2, 1),  # no interior row
        ([[2], [1]], 2, 1),  # the interior has no edge: nothing to do while rows travel
        ([[], []], 0, 0),  # a rank without rows
        ([[0, 2, 1], [1, 0, 2]], 2, 1),  # a target that is a halo row
        ([[0, 3], [1, 0]], 2, 1),  # a source that is no row
        ([[0, 2, -1], [1, 0, 1]], 2, 1),
    ],
)
def test_edges_that_are_not_split(edges: list[list[int]], num_inner: int, num_halo: int) -> None:
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(2, -1)
    assert split_by_target(edge_index, num_inner, num_halo) is None


def test_one_interior_row_in_twenty_is_enough() -> None:
    for num_inner, is_split in ((20, True), (21, False)):
        targets = torch.arange(num_inner)
        sources = torch.where(targets == 0, 0, num_inner)
        split = split_by_target(torch.stack([sources, targets]), num_inner, 1)
        assert (split is not None) == is_split


def test_other_kinds_of_tensors_are_not_split() -> None:
    assert split_by_target(EDGES.int(), 4, 2) is None
    assert split_by_target(EDGES[:1], 4, 2) is None
    assert split_by_target(EDGES[0], 4, 2) is None

    class Edges(Tensor):
        pass

    assert split_by_target(EDGES.as_subclass(Edges), 4, 2) is None


def test_split_is_made_once_until_the_edges_change() -> None:
    splits = SplitGraphs(4, 2)
    edges = EDGES.clone()
    first = splits.find(edges)
    assert first is not None
    assert splits.find(edges) is first
    assert splits.find(edges[:]) is first  # another tensor on the same storage
    assert splits.find(edges.clone()) is not first
    edges[0, 0] = 3
    second = splits.find(edges)
    assert second is not None and second is not first
    assert second.interior.nodes.tolist() == [0, 2, 1, 3]


def test_edges_in_use_stay_and_old_ones_go() -> None:
    splits = SplitGraphs(4, 2)
    in_use = splits.find(EDGES)
    others = [EDGES.clone() for _ in range(6)]
    made = []
    for other in others:
        made.append(splits.find(other))
        assert splits.find(EDGES) is in_use
    assert splits.find(others[-1]) is made[-1]
    assert splits.find(others[0]) is not made[0]
    assert len(splits._kept) == 4


def test_what_is_made_under_inference_mode_serves_in_training() -> None:
    splits = SplitGraphs(4, 2)
    with torch.inference_mode():
        split = splits.find(EDGES)
        assert splits.find(EDGES.clone()) is None  # its versions are not counted
    assert isinstance(split, SplitGraph)
    x = torch.ones(4, 3, requires_grad=True)
    x.index_select(0, split.interior.nodes).sum().backward()
    assert x.grad is not None
    assert x.grad[:, 0].tolist() == [1.0, 1.0, 1.0, 0.0]
