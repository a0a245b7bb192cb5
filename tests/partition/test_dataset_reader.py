"""Datasets by name: found, or refused with what to do."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_geometric.data import Data

from horovod_sylvie.partition.graph_readers import read_graph

from .source_cases import example_data


def test_dataset_without_root_asks_for_it() -> None:
    for name in ("Cora", "Planetoid/PubMed", "ogbn-arxiv"):
        with pytest.raises(ValueError, match=f"{name}: expected 'root' \\(--root\\)"):
            read_graph(name)


def test_dataset_names_that_do_not_fit_their_class_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected 'Planetoid/<name>'"):
        read_graph("Planetoid", root=tmp_path)
    with pytest.raises(ValueError, match="expected no name after '/'"):
        read_graph("Reddit/x", root=tmp_path)


class FakePlanetoid:
    def __init__(self, root: str, name: str) -> None:
        if name == "PubMed":
            raise OSError("no connection")
        self.graphs = [example_data()] * (2 if name == "CiteSeer" else 1)
        assert Path(root).name == "Planetoid"

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, index: int) -> Data:
        return self.graphs[index]


@pytest.fixture
def planetoid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch_geometric.datasets.Planetoid", FakePlanetoid)


@pytest.mark.usefixtures("planetoid")
def test_pyg_dataset_by_short_and_long_name_is_the_same(tmp_path: Path) -> None:
    for name in ("Cora", "Planetoid/Cora"):
        assert read_graph(name, root=tmp_path).num_nodes == 4


@pytest.mark.usefixtures("planetoid")
def test_pyg_dataset_that_fails_or_has_many_graphs_is_explained(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="OSError: no connection. Check the connection"):
        read_graph("PubMed", root=tmp_path)
    with pytest.raises(ValueError, match="expected a dataset with one graph, got 2"):
        read_graph("CiteSeer", root=tmp_path)


class FakeOgb:
    def __init__(self, name: str, root: str) -> None:
        self.graph = {
            "num_nodes": 4,
            "edge_index": np.array([[0, 1], [1, 2]]),
            "edge_feat": None,
            "node_feat": None if name == "ogbn-proteins" else np.zeros((4, 2), np.float32),
        }

    def __getitem__(self, index: int) -> tuple[dict[str, Any], np.ndarray]:
        return self.graph, np.array([[0], [1], [np.nan], [1]])

    def get_idx_split(self) -> dict[str, np.ndarray]:
        return {"train": np.array([0]), "valid": np.array([1]), "test": np.array([2, 3])}


def test_ogb_dataset_gives_masks_and_missing_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("ogb.nodeproppred")
    module.NodePropPredDataset = FakeOgb  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ogb", types.ModuleType("ogb"))
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", module)
    graph = read_graph("ogbn-arxiv", root=tmp_path)
    assert graph.y.tolist() == [0, 1, -1, 1]
    assert graph.test_mask[:, 0].tolist() == [False, False, True, True]
    with pytest.raises(ValueError, match="with node features"):
        read_graph("ogbn-proteins", root=tmp_path)


def test_ogb_missing_says_the_pip_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ogb", None)
    with pytest.raises(ImportError, match="pip install ogb"):
        read_graph("ogbn-arxiv", root=tmp_path)
