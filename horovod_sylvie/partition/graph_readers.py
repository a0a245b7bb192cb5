"""Turning what the user names into a `Graph`.

Here: `read_graph`, which decides who reads. Not here: the readers (npz_reader.py, pyg_reader.py,
dataset_reader.py, synthetic.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .dataset_reader import read_dataset
from .graph import Graph
from .npz_reader import read_npz
from .pyg_reader import graph_from_data, read_pyg
from .synthetic import make_graph
from .synthetic_spec import PREFIX, parse_spec

if TYPE_CHECKING:
    from torch_geometric.data import Data

_PYG_SUFFIXES = (".pt", ".pth")


def read_graph(
    source: Data | str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    target: str | None = None,
) -> Graph:
    """Read a graph from any source.

    Args:
        source: A .npz file (npz_reader.py), a .pt or .pth file with a PyG `Data`, such a `Data`
            itself, "synthetic:key=value,..." (synthetic.py), or the name of a dataset: "Cora",
            "Planetoid/Cora", "Reddit", "ogbn-arxiv".
        root: Where named datasets are kept; needed for them and refused for everything else.
        target: "y" or "y_multi", for a .npz file that holds both; refused for everything else.

    Returns:
        The checked graph.

    Raises:
        ValueError: The source is unknown, does not exist, or holds a graph that is not allowed.
        TypeError: `source` is none of the above.
        ImportError: The dataset needs a package that is not installed.
        RuntimeError: The source cannot be read.
    """
    if not isinstance(source, (str, os.PathLike)):
        _refuse_unused(root, target)
        return graph_from_data(source, "PyG Data")
    text = os.fspath(source)
    path = Path(text)
    if text == PREFIX.rstrip(":") or text.startswith(PREFIX):
        _refuse_unused(root, target)
        return make_graph(parse_spec(text.removeprefix(PREFIX.rstrip(":")).removeprefix(":")))
    if path.suffix in (".npz", *_PYG_SUFFIXES) or path.is_file():
        return _read_file(path, root, target)
    if path.is_dir():
        raise ValueError(
            f"read_graph: expected a file or a name for 'source', got the directory {path}. "
            "A directory that `partition` wrote is read with load_partition."
        )
    _refuse_unused(None, target)
    return read_dataset(text, root)


def _read_file(path: Path, root: str | os.PathLike[str] | None, target: str | None) -> Graph:
    if not path.is_file():
        raise ValueError(
            f"read_graph: expected a file for 'source', got {path}, which does not exist."
        )
    if path.suffix == ".npz":
        _refuse_unused(root, None)
        return read_npz(path, target=target)
    _refuse_unused(root, target)
    if path.suffix in _PYG_SUFFIXES:
        return read_pyg(path)
    raise ValueError(
        f"read_graph: expected a .npz, .pt or .pth file for 'source', got {path}. "
        "Save the graph with numpy.savez or torch.save."
    )


def _refuse_unused(root: str | os.PathLike[str] | None, target: str | None) -> None:
    if root is not None:
        raise ValueError(
            f"read_graph: expected no 'root' (--root) for this source, got {os.fspath(root)!r}. "
            "It says where named datasets are kept."
        )
    if target is not None:
        raise ValueError(
            f"read_graph: expected no 'target' (--target) for this source, got {target!r}. "
            "It chooses between the labels of a .npz file."
        )
