""".npz files: read right, or refused with the file and the array named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from horovod_sylvie.partition.graph_readers import read_graph

from .source_cases import npz_arrays, write_npz


def test_npz_undirected_edges_are_mirrored_late(tmp_path: Path) -> None:
    graph = read_graph(write_npz(tmp_path / "g.npz"))
    assert graph.mirror
    assert graph.edge_index.shape == (2, 3)
    edges, origin = graph.message_edges()
    assert edges.tolist() == [[0, 1, 0, 1, 2, 3], [1, 2, 3, 0, 1, 0]]
    assert origin.tolist() == [0, 1, 2, 0, 1, 2]
    assert (graph.num_classes, graph.num_features, graph.num_splits) == (3, 2, 1)
    assert graph.name.endswith("g.npz")


def test_npz_directed_edges_stay_as_they_are(tmp_path: Path) -> None:
    graph = read_graph(write_npz(tmp_path / "g.npz", directed=np.int8(1)))
    assert graph.message_edges()[0].tolist() == [[0, 1, 0], [1, 2, 3]]


@pytest.mark.parametrize("ones", [True, False])
def test_npz_sparse_features_equal_dense_ones(tmp_path: Path, ones: bool) -> None:
    dense = np.array([[0, 3], [3, 0], [0, 0], [3, 3]], dtype=np.float32)
    matrix = sp.csr_array(dense)
    path = write_npz(
        tmp_path / "g.npz",
        x=None,
        x_data=matrix.data[:1] if ones else matrix.data,
        x_indices=matrix.indices.astype(np.uint16),
        x_indptr=matrix.indptr,
        x_shape=np.array(matrix.shape),
    )
    graph = read_graph(path)
    assert sp.issparse(graph.x)
    np.testing.assert_array_equal(graph.dense_features(), dense)


def test_npz_with_both_label_arrays_gives_the_one_asked_for(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "g.npz", y_multi=np.eye(4, 3, dtype=np.uint8))
    assert not read_graph(path).multilabel
    assert read_graph(path, target="y_multi").num_classes == 3
    only_multi = write_npz(tmp_path / "m.npz", y=None, y_multi=np.eye(4, 3, dtype=np.uint8))
    assert read_graph(only_multi).multilabel
    with pytest.raises(ValueError, match="expected labels in 'y'"):
        read_graph(only_multi, target="y")


def test_npz_unknown_arrays_are_named_in_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read_graph(write_npz(tmp_path / "g.npz", colour=np.zeros(4)))
    assert "colour" in caplog.text


WRONG_ARRAYS = [
    ("edge_index", np.array([[0], [4]]), "expected ids in \\[0, 4\\) in 'edge_index', got 0 to 4"),
    ("edge_index", np.array([[0], [-1]]), "got -1 to 0"),
    ("edge_index", np.zeros((3, 2), int), "expected shape \\(2, E\\)"),
    ("num_nodes", np.int64(-1), "expected 0 <= num_nodes"),
    ("num_nodes", np.arange(2), "expected one integer in 'num_nodes'"),
    ("x", np.zeros((3, 2)), "expected shape \\(N, F\\) with N = 4 for 'x', got \\(3, 2\\)"),
    ("x", np.full((4, 1), np.nan), "expected finite numbers in 'x'"),
    ("x", np.full((4, 1), 1e300), "too large for float32"),
    ("y", np.zeros(3, int), "for 'y'"),
    ("y", np.array([0, 1, -2, 0]), "-1 for 'no label'"),
    ("y", np.array([0, 1, 2**31, 0]), "expected classes from 0 to 2147483647, .*, got 0 to 21474"),
    ("y", np.array([0, 1, 0.5, 0]), "got fractions"),
    ("directed", np.int8(2), "expected 0 or 1 in 'directed', got 2"),
    ("directed", np.int8(-1), "expected 0 or 1 in 'directed', got -1"),
    ("train_mask", np.zeros(5, bool), "for 'train_mask'"),
    ("val_mask", np.array([0, 1, -1, 0]), "expected 0 and 1 in 'val_mask', got -1 to 1"),
    ("test_mask", np.zeros((4, 0), bool), "at least one column in 'test_mask'"),
    ("edge_weight", np.zeros(2), "with E = 3 for 'edge_weight'"),
    ("edge_weight", np.array([1, np.inf, 1]), "expected finite numbers in 'edge_weight'"),
    ("edge_attr", np.zeros((2, 2)), "for 'edge_attr'"),
]


@pytest.mark.parametrize(("name", "value", "text"), WRONG_ARRAYS)
def test_npz_wrong_array_is_named_with_its_file(
    tmp_path: Path, name: str, value: Any, text: str
) -> None:
    path = write_npz(tmp_path / "g.npz", **{name: value})
    with pytest.raises(ValueError, match=text) as caught:
        read_graph(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["edge_index", "y", "train_mask", "x", "edge_weight"])
def test_npz_array_of_text_is_refused(tmp_path: Path, name: str) -> None:
    shape = np.shape(npz_arrays().get(name, np.zeros(3)))
    path = write_npz(tmp_path / "g.npz", **{name: np.full(shape, "a")})
    with pytest.raises(TypeError, match=f"'{name}'"):
        read_graph(path)


def test_npz_masks_with_different_columns_are_refused(tmp_path: Path) -> None:
    path = write_npz(
        tmp_path / "g.npz", train_mask=np.zeros((4, 2), bool), val_mask=np.zeros((4, 3), bool)
    )
    with pytest.raises(ValueError, match=r"same number of split columns.*\[2, 3, 1\]"):
        read_graph(path)


@pytest.mark.parametrize("name", ["num_nodes", "edge_index", "train_mask", "x", "y"])
def test_npz_missing_array_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}"):
        read_graph(write_npz(tmp_path / "g.npz", **{name: None}))


def test_npz_csr_parts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    parts = {"x_data": np.ones(1), "x_indices": np.array([0, 9]), "x_shape": np.array([4, 2])}
    path = write_npz(tmp_path / "g.npz", x=None, x_indptr=np.array([0, 1, 2, 2, 2]), **parts)
    with pytest.raises(ValueError, match="expected a CSR matrix"):
        read_graph(path)


def test_npz_object_array_is_not_unpickled(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "g.npz", y=np.array([{}, 1, 2, 3], dtype=object))
    with pytest.raises(RuntimeError, match="y cannot be read.*object arrays are refused"):
        read_graph(path)


def test_npz_boolean_labels_are_classes_zero_and_one(tmp_path: Path) -> None:
    graph = read_graph(write_npz(tmp_path / "g.npz", y=np.array([True, False, True, True])))
    assert graph.y.tolist() == [1, 0, 1, 1]
    assert graph.y.dtype == np.int64
    assert graph.num_classes == 2


def test_npz_that_is_a_renamed_npy_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "g.npy", np.zeros(3))
    path = (tmp_path / "g.npy").rename(tmp_path / "g.npz")
    with pytest.raises(RuntimeError, match=r"cannot be read \(it is a single \.npy array\)"):
        read_graph(path)


def test_npz_truncated_or_changed_is_refused(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "g.npz", x=np.ones((4, 500), np.float32))
    original = path.read_bytes()
    changed = bytearray(original)
    changed[2000] ^= 1
    for content in (b"", original[:-50], original[: len(original) // 2], bytes(changed)):
        path.write_bytes(content)
        with pytest.raises(RuntimeError, match=r"g\.npz: expected a \.npz file"):
            read_graph(path)


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [(6, 0xFF, "zip file version 25"), (8, 0x01, "encrypted, password required")],
)
def test_npz_whose_directory_asks_for_what_python_has_not_is_refused(
    tmp_path: Path, place: int, value: int, why: str
) -> None:
    path = write_npz(tmp_path / "g.npz")
    changed = bytearray(path.read_bytes())
    changed[changed.index(b"PK\1\2") + place] = value
    path.write_bytes(changed)
    with pytest.raises(RuntimeError, match=rf"g\.npz: .* cannot be read \(.*{why}"):
        read_graph(path)


@pytest.mark.parametrize("name", ["cora", "tolokers", "debian_deps"])
def test_real_npz_agrees_with_its_arrays(name: str, shared_data: Path) -> None:
    path = shared_data / name / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"needs {path.name} in the folder shared/data beside the repository")
    graph = read_graph(path)
    with np.load(path, allow_pickle=False) as arrays:
        stored = arrays["edge_index"]
        expected = np.concatenate([stored, stored[::-1]], axis=1)
        np.testing.assert_array_equal(graph.message_edges()[0], expected)
        np.testing.assert_array_equal(graph.y, arrays["y"])
        masks = arrays["test_mask"].reshape(graph.num_nodes, -1)
        np.testing.assert_array_equal(graph.test_mask, masks)
