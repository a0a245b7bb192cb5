"""`assign`: owners for every node, balanced, repeatable; the cost model decides."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from horovod_sylvie.partition.assignment import MAX_PARTS, CostModel, assign
from horovod_sylvie.partition.graph import Graph
from horovod_sylvie.partition.graph_readers import read_graph
from horovod_sylvie.partition.metis import metis_adjacency
from horovod_sylvie.partition.owned_edges import OwnedEdges, PartCounts

from .partition_cases import build_graph


@pytest.fixture(scope="module")
def clustered() -> Graph:
    return read_graph("synthetic:nodes=3000,degree=12,mixing=0.1,features=1")


def test_assign_metis_balances_edges_and_cuts_less_than_random(clustered: Graph) -> None:
    metis = assign(clustered, 4)
    random = assign(clustered, 4, method="random")
    edges = metis.counts.num_edges
    assert edges.max() / edges.mean() < 1.06
    assert metis.counts.num_cut_edges < random.counts.num_cut_edges / 2
    assert metis.objective in ("cut", "vol")
    assert metis.edge_share == 1


def test_assign_counts_agree_with_the_definition(clustered: Graph) -> None:
    found = assign(clustered, 3)
    edges = clustered.message_edges()[0]
    source, target = found.owners[edges[0]], found.owners[edges[1]]
    assert found.counts.num_cut_edges == (source != target).sum()
    assert found.counts.num_edges.tolist() == np.bincount(target, minlength=3).tolist()
    for rank in range(3):
        read = np.unique(edges[0, (target == rank) & (source != rank)])
        owners = np.bincount(found.owners[read], minlength=3)
        assert found.counts.halo[rank].tolist() == owners.tolist()


@pytest.mark.parametrize("method", ["random", "contiguous"])
@pytest.mark.parametrize("num_parts", [1, 3, 7, 20])
def test_assign_rules_give_parts_of_equal_size(method: str, num_parts: int) -> None:
    owners = assign(build_graph(17), num_parts, method=method).owners
    sizes = np.bincount(owners, minlength=num_parts)
    assert sizes.max() - sizes.min() <= 1
    if method == "contiguous":
        assert (np.diff(owners) >= 0).all()


def test_assign_keeps_the_objective_with_the_smaller_prediction(clustered: Graph) -> None:
    found = assign(clustered, 4)
    assert found.predicted_s[found.objective] == min(found.predicted_s.values())
    assert found.predicted_s[found.objective] == CostModel().predict_s(found.counts)


def test_cost_model_is_the_formula_of_its_docstring() -> None:
    counts = PartCounts(np.array([3, 5]), np.array([100, 80]), np.array([[0, 4], [7, 0]]), 20)
    model = CostModel(s_per_edge=1.0, s_per_node=10.0, s_per_row=1000.0)
    assert model.predict_s(counts) == max(100 + 30, 80 + 50) + 7000


@pytest.mark.parametrize("method", ["metis", "random", "contiguous"])
def test_assign_same_seed_gives_same_owners(clustered: Graph, method: str) -> None:
    first, again = (assign(clustered, 5, method=method, seed=3).owners for _ in range(2))
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("method", ["metis", "random"])
def test_assign_seeds_zero_and_one_differ(clustered: Graph, method: str) -> None:
    owners = [assign(clustered, 5, method=method, seed=seed).owners for seed in (0, 1)]
    assert not np.array_equal(*owners)


@pytest.mark.parametrize("num_nodes", [0, 1, 5, 16])
@pytest.mark.parametrize("num_parts", [1, 2, 8, 40])
def test_assign_metis_on_tiny_graphs_says_nothing_on_stdout(
    num_nodes: int, num_parts: int, capfd: pytest.CaptureFixture[str]
) -> None:
    owners = assign(build_graph(num_nodes), num_parts).owners
    assert owners.shape == (num_nodes,)
    assert ((owners >= 0) & (owners < num_parts)).all()
    assert capfd.readouterr() == ("", "")


def test_assign_short_of_memory_thins_the_graph_for_metis_only(clustered: Graph) -> None:
    whole = assign(clustered, 4)
    thinned = assign(clustered, 4, metis_bytes=1_000_000)
    assert 0 < thinned.edge_share < 1
    assert thinned.counts.num_edges.sum() == whole.counts.num_edges.sum()
    assert thinned.counts.num_edges.max() / thinned.counts.num_edges.mean() < 1.1
    assert thinned.counts.num_halo.sum() < 1.5 * whole.counts.num_halo.sum()
    least = assign(clustered, 4, metis_bytes=0)
    assert least.edge_share == pytest.approx(6 / 12)


def test_metis_adjacency_is_symmetric_and_simple() -> None:
    graph = build_graph()
    # 300 copies of one edge: more than the int8 values of the matrix can count
    edges = np.concatenate([graph.edge_index, np.tile([[0], [1]], 300).astype(np.int32)], axis=1)
    dense = metis_adjacency(edges, graph.num_nodes).toarray() != 0
    expected = np.zeros_like(dense)
    expected[edges[0], edges[1]] = expected[edges[1], edges[0]] = True
    np.fill_diagonal(expected, val=False)
    np.testing.assert_array_equal(dense, expected)


def test_owned_edges_keep_the_order_of_the_messages() -> None:
    graph = build_graph(mirror=True)
    owners = assign(graph, 3, method="random").owners
    edges, origin = graph.message_edges()
    for rank in range(3):
        source, target, stored = OwnedEdges(graph, owners, 3).into(rank)
        mine = owners[edges[1]] == rank
        np.testing.assert_array_equal(np.stack([source, target]), edges[:, mine])
        np.testing.assert_array_equal(stored, origin[mine])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"num_parts": 0}, f"expected 1 to {MAX_PARTS} for 'num_parts', got 0"),
        ({"num_parts": MAX_PARTS + 1}, "for 'num_parts'"),
        ({"method": "spectral"}, "expected one of metis, random, contiguous for 'method'"),
        ({"seed": -1}, "for 'seed', got -1"),
        ({"seed": 2**31}, "for 'seed'"),
    ],
)
def test_assign_wrong_argument_is_named(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        assign(build_graph(), **{"num_parts": 2, **arguments})  # type: ignore[arg-type]


def test_assign_number_of_parts_must_be_an_integer() -> None:
    with pytest.raises(TypeError, match="expected an integer for 'num_parts', got 2.0"):
        assign(build_graph(), 2.0)  # type: ignore[arg-type]


def test_assign_without_pymetis_says_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match="pip install pymetis"):
        assign(build_graph(), 2)
    assign(build_graph(), 2, method="random")


def test_assign_in_another_process_gives_the_same_owners(clustered: Graph) -> None:
    program = (
        "from horovod_sylvie.partition.assignment import assign\n"
        "from horovod_sylvie.partition.graph_readers import read_graph\n"
        "graph = read_graph('synthetic:nodes=3000,degree=12,mixing=0.1,features=1')\n"
        "print(assign(graph, 4).owners.tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.stdout.strip() == str(assign(clustered, 4).owners.tolist())
