"""`read_graph` tells sources apart and refuses what a source cannot use."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch_geometric.data import HeteroData

from horovod_sylvie.partition.graph_readers import read_graph

from .source_cases import example_data, write_npz


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match=r"got HeteroData.*to_homogeneous"):
        read_graph(HeteroData())
    with pytest.raises(TypeError, match="got int"):
        read_graph(3)  # type: ignore[arg-type]


def test_missing_file_unknown_name_and_directory_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"g\.npz, which does not exist"):
        read_graph(tmp_path / "g.npz")
    with pytest.raises(ValueError, match=r"'Nonesuch', which is none.*Examples"):
        read_graph("Nonesuch", root=tmp_path)
    with pytest.raises(ValueError, match="got the directory"):
        read_graph(tmp_path)
    (tmp_path / "g.csv").touch()
    with pytest.raises(ValueError, match=r"expected a \.npz, \.pt or \.pth file"):
        read_graph(tmp_path / "g.csv")


def test_arguments_that_a_source_cannot_use_are_refused(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "g.npz")
    with pytest.raises(ValueError, match="expected no 'root'"):
        read_graph(path, root=tmp_path)
    for source in ("synthetic:", "Cora", example_data()):
        with pytest.raises(ValueError, match="expected no 'target'"):
            read_graph(source, target="y")
    with pytest.raises(ValueError, match="expected 'y' or 'y_multi' for 'target'"):
        read_graph(path, target="z")
