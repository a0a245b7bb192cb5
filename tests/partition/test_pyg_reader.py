"""PyG `Data`, saved or in memory: read right and safely, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from horovod_sylvie.partition.graph_readers import read_graph
from horovod_sylvie.partition.partitioner import partition_graph

from .source_cases import example_data


@pytest.mark.parametrize("as_dict", [False, True])
def test_pyg_file_gives_the_data_back(tmp_path: Path, as_dict: bool) -> None:
    data = example_data(edge_weight=torch.rand(4), edge_attr=torch.rand(4, 3))
    torch.save(data.to_dict() if as_dict else data, tmp_path / "d.pt")
    graph = read_graph(tmp_path / "d.pt")
    assert not graph.mirror
    np.testing.assert_array_equal(graph.message_edges()[0], data.edge_index)
    np.testing.assert_array_equal(graph.x, data.x)
    np.testing.assert_array_equal(graph.edge_weight, data.edge_weight)
    np.testing.assert_array_equal(graph.edge_attr, data.edge_attr)
    np.testing.assert_array_equal(graph.y, data.y)


def test_pyg_sparse_features_stay_sparse() -> None:
    data = example_data()
    graph = read_graph(example_data(x=data.x.to_sparse()))
    assert sp.issparse(graph.x)
    np.testing.assert_array_equal(graph.dense_features(), data.x)


def test_pyg_data_goes_straight_into_partition_graph(tmp_path: Path) -> None:
    report = partition_graph(example_data(), tmp_path / "p", 2)
    assert report.num_edges == 4


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("code of the file ran",))


def test_pyg_file_that_would_run_code_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"x": Evil()}, tmp_path / "d.pt")
    with pytest.raises(RuntimeError, match=r"d\.pt: expected a PyG Data that can be read safely"):
        read_graph(tmp_path / "d.pt")
    assert capsys.readouterr().out == ""


def test_pyg_file_with_a_model_names_its_class_and_no_unsafe_advice(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "d.pt")
    with pytest.raises(RuntimeError) as caught:
        read_graph(tmp_path / "d.pt")
    text = str(caught.value)
    assert "got one that holds torch.nn.modules.linear.Linear. Save a plain one" in text
    assert "\x1b" not in text
    assert "weights_only" not in text


def test_pyg_damaged_file_is_refused(tmp_path: Path) -> None:
    torch.save(example_data(), tmp_path / "d.pt")
    content = (tmp_path / "d.pt").read_bytes()
    for part in (b"", b"junk", b"garbage", content[: len(content) // 2]):
        (tmp_path / "d.pt").write_bytes(part)
        with pytest.raises(RuntimeError, match=r"d\.pt: expected a PyG Data"):
            read_graph(tmp_path / "d.pt")


def test_pyg_data_without_masks_says_how_to_split() -> None:
    with pytest.raises(ValueError, match="RandomNodeSplit"):
        read_graph(example_data(val_mask=None))


@pytest.mark.parametrize("field", ["edge_index", "x", "y"])
def test_pyg_data_without_a_field_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"expected '{field}' in the Data"):
        read_graph(example_data(**{field: None}))


def test_pyg_file_under_a_torch_without_safe_globals_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save(example_data(), tmp_path / "d.pt")
    monkeypatch.delattr("torch.serialization.safe_globals")
    with pytest.raises(RuntimeError, match=r"expected torch 2\.5 or newer"):
        read_graph(tmp_path / "d.pt")
