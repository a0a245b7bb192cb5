"""`Graph`: the message list that its edges stand for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from horovod_sylvie.partition.graph import Graph

from .partition_cases import build_graph


def test_graph_loops_of_a_mirrored_graph_occur_once() -> None:
    masks = {f"{name}_mask": np.zeros(3, bool) for name in ("train", "val", "test")}
    edges = np.array([[0, 1, 2], [1, 1, 0]])
    graph = Graph(
        num_nodes=3, edge_index=edges, x=np.ones((3, 1)), y=np.zeros(3, int), mirror=True, **masks
    )
    messages, origin = graph.message_edges()
    assert messages.tolist() == [[0, 1, 2, 1, 0], [1, 1, 0, 0, 2]]
    assert origin.tolist() == [0, 1, 2, 0, 2]


def test_graph_arrays_that_fit_are_kept_not_copied() -> None:
    source = build_graph(weighted=True)
    x = np.zeros((12, 3), np.float32)
    graph = replace(source, x=x)
    assert graph.x is x
    assert graph.edge_index is source.edge_index
    assert graph.edge_weight is source.edge_weight


@pytest.mark.parametrize("dtype", [np.float16, np.uint8, np.int8, np.int16, np.float32])
def test_graph_narrow_features_stay_narrow_and_are_exact(dtype: type) -> None:
    x = np.arange(12, dtype=dtype).reshape(12, 1)
    graph = replace(build_graph(), x=x)
    assert graph.x.dtype == dtype
    assert graph.dense_features().dtype == np.float32
    np.testing.assert_array_equal(graph.dense_features(), x)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32, np.bool_])
def test_graph_wide_features_are_narrowed(dtype: type) -> None:
    graph = replace(build_graph(), x=np.ones((12, 1), dtype=dtype))
    assert graph.x.dtype in (np.float32, np.uint8)
    assert (graph.dense_features() == 1).all()


def test_graph_bytes_are_those_of_its_arrays() -> None:
    graph = build_graph(12, 40)
    assert graph.nbytes == 2 * 40 * 4 + 12 * 5 * 4 + 12 * 8 + 3 * 12


def test_graph_without_any_label_has_no_classes() -> None:
    assert replace(build_graph(), y=np.full(12, -1)).num_classes == 0
