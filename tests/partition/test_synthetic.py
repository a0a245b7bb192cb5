"""The synthetic block model: what was asked for is what is drawn."""

from __future__ import annotations

import numpy as np
import pytest

from horovod_sylvie.partition.graph_readers import read_graph
from horovod_sylvie.partition.synthetic import make_graph
from horovod_sylvie.partition.synthetic_spec import SyntheticSpec, parse_spec


def test_spec_text_sets_what_it_names_and_defaults_the_rest() -> None:
    spec = parse_spec("synthetic:nodes=100, degree=3.5,seed=7,")
    assert spec == SyntheticSpec(nodes=100, degree=3.5, seed=7)
    assert parse_spec("synthetic:") == SyntheticSpec()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour=3", r"got 'colour=3' \(not a known key=value\)\. Keys and defaults: nodes=20000"),
        ("nodes", "got 'nodes'"),
        ("nodes=3,nodes=4", r"\(given twice\)"),
        ("nodes=3.5", "expected a whole number for 'nodes', got '3.5'"),
        ("degree=lots", "expected a number for 'degree', got 'lots'"),
        ("nodes=0", "expected 1 to 2.14748e\\+09 for 'nodes', got 0"),
        ("mixing=1.5", "expected 0 to 1 for 'mixing'"),
        ("mixing=nan", "expected 0 to 1 for 'mixing', got nan"),
        ("noise=inf", "for 'noise', got inf"),
        ("exponent=2", "for 'exponent'"),
        ("classes=1", "expected 0 to 0 for 'mixing'"),
        ("train=0.8,val=0.3", "for 'val'"),
        ("nodes=10,degree=10", "expected 0 to 9 for 'degree'"),
        ("seed=-1", "for 'seed'"),
    ],
)
def test_spec_wrong_text_is_explained(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_spec("synthetic:" + text)


def test_graph_degree_that_cannot_be_reached_is_refused() -> None:
    with pytest.raises(ValueError, match="only .* distinct edges found. Lower the degree"):
        make_graph(SyntheticSpec(nodes=40, degree=20, classes=10, mixing=0))


def test_graph_is_simple_and_has_the_degree_asked_for() -> None:
    graph = make_graph(SyntheticSpec(nodes=3000, degree=11))
    edges = graph.edge_index
    assert graph.mirror
    assert edges.shape == (2, 3000 * 11 // 2)
    assert (edges[0] < edges[1]).all()
    assert len(np.unique(edges[0].astype(np.int64) * 3000 + edges[1])) == edges.shape[1]


@pytest.mark.parametrize("mixing", [0.0, 0.3, 1.0])
def test_graph_mixing_is_the_share_of_edges_between_classes(mixing: float) -> None:
    graph = make_graph(SyntheticSpec(nodes=5000, degree=10, mixing=mixing))
    between = graph.y[graph.edge_index[0]] != graph.y[graph.edge_index[1]]
    assert between.mean() == pytest.approx(mixing, abs=0.03)


def test_graph_smaller_exponent_gives_larger_hubs() -> None:
    def largest(exponent: float) -> int:
        graph = make_graph(SyntheticSpec(nodes=5000, degree=10, exponent=exponent))
        return int(np.bincount(graph.edge_index.ravel()).max())

    assert largest(2.1) > 2 * largest(5)


def test_graph_noise_is_the_deviation_around_unit_class_means() -> None:
    graph = make_graph(SyntheticSpec(nodes=8000, degree=2, features=6, noise=0.5))
    for label in range(graph.num_classes):
        rows = graph.x[graph.y == label]
        assert np.linalg.norm(rows.mean(axis=0)) == pytest.approx(1, abs=0.1)
        assert rows.std(axis=0) == pytest.approx(0.5, abs=0.05)


def test_graph_classes_and_splits_have_the_sizes_asked_for() -> None:
    graph = make_graph(SyntheticSpec(nodes=1000, degree=4, classes=4, train=0.5, val=0.3))
    assert np.bincount(graph.y).tolist() == [250] * 4
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    assert [int(mask.sum()) for mask in masks] == [500, 300, 200]
    assert sum(mask.astype(int) for mask in masks).tolist() == [[1]] * 1000


def test_graph_label_noise_changes_that_share_of_labels() -> None:
    spec = SyntheticSpec(nodes=4000, degree=2, classes=4)
    clean, noisy = (
        make_graph(spec),
        make_graph(SyntheticSpec(nodes=4000, degree=2, classes=4, label_noise=0.4)),
    )
    assert (clean.y != noisy.y).mean() == pytest.approx(0.4 * 3 / 4, abs=0.03)
    np.testing.assert_array_equal(clean.edge_index, noisy.edge_index)


def test_graph_same_seed_is_the_same_and_noise_leaves_the_edges() -> None:
    first, again = (read_graph("synthetic:nodes=500,seed=3") for _ in range(2))
    other_seed = read_graph("synthetic:nodes=500,seed=4")
    other_noise = read_graph("synthetic:nodes=500,seed=3,noise=2")
    np.testing.assert_array_equal(first.edge_index, again.edge_index)
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.edge_index, other_noise.edge_index)
    assert not np.array_equal(first.edge_index, other_seed.edge_index)


@pytest.mark.parametrize("spec", ["nodes=1,degree=0,classes=1,mixing=0", "nodes=9,degree=0"])
def test_graph_without_edges_is_drawn(spec: str) -> None:
    assert read_graph(f"synthetic:{spec}").edge_index.shape == (2, 0)
