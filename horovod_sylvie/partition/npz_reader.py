"""Reading a graph from a .npz file.

Here: the format and `read_npz`. Not here: other sources (graph_readers.py), checks
(graph_checks.py).

| array | shape | meaning |
|---|---|---|
| num_nodes | () | N |
| edge_index | (2, E) | ids; each undirected edge once, unless `directed` is 1 |
| directed | () | 1: `edge_index` holds every message; 0 or missing: mirror images are added |
| x | (N, F) | features, dense; or CSR parts: |
| x_data, x_indices | (nnz or 1,), (nnz,) | one value in `x_data` stands for all |
| x_indptr, x_shape | (N + 1,), (2,) | as in scipy's CSR |
| y | (N,) | class, -1 where unlabelled |
| y_multi | (N, C) | label columns of 0 and 1; used if there is no `y`, or on request |
| train_mask, val_mask, test_mask | (N,) or (N, K) | K splits |
| edge_weight, edge_attr | (E,), (E, ...) | optional |
"""

from __future__ import annotations

import logging
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from .graph import Array, Graph

_REQUIRED = ("num_nodes", "edge_index", "train_mask", "val_mask", "test_mask")
_CSR_PARTS = ("x_data", "x_indices", "x_indptr", "x_shape")
_OPTIONAL = ("directed", "x", "y", "y_multi", "edge_weight", "edge_attr")

_logger = logging.getLogger(__name__)


def read_npz(path: Path, *, target: str | None = None) -> Graph:
    """Read a graph from a .npz file in the format of the module docstring.

    Args:
        path: The file.
        target: "y" or "y_multi"; None takes `y` where there is one.

    Returns:
        The checked graph; its name is the file's.

    Raises:
        ValueError: An array is missing or wrong.
        TypeError: An array has a dtype that cannot be meant.
        RuntimeError: The file is damaged, or no .npz file.
    """
    arrays = _load_arrays(path)
    missing = [name for name in _REQUIRED if name not in arrays]
    if missing:
        raise ValueError(f"{path}: expected the arrays {', '.join(_REQUIRED)}, {missing} missing.")
    unknown = sorted(set(arrays) - {*_REQUIRED, *_CSR_PARTS, *_OPTIONAL})
    if unknown:
        _logger.warning("%s: arrays that are no part of the format, unused: %s", path, unknown)
    return Graph(
        num_nodes=_scalar(path, arrays, "num_nodes"),
        edge_index=arrays["edge_index"],
        x=_features(path, arrays),
        y=_labels(path, arrays, target),
        train_mask=arrays["train_mask"],
        val_mask=arrays["val_mask"],
        test_mask=arrays["test_mask"],
        edge_weight=arrays.get("edge_weight"),
        edge_attr=arrays.get("edge_attr"),
        mirror=not _is_directed(path, arrays),
        name=str(path),
    )


def _load_arrays(path: Path) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    name = "the list of arrays"
    try:
        # Opened here: numpy leaves the file open when the archive in it is broken.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it is a single .npy array")
            with archive:
                for name in archive.files:
                    arrays[name] = archive[name]
    # RuntimeError: what zipfile cannot do, or cannot do without a password
    except (ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise RuntimeError(
            f"{path}: expected a .npz file with plain arrays, but {name} cannot be read ({error}). "
            "Write it again with numpy.savez; object arrays are refused, because loading them can "
            "run code."
        ) from error
    return arrays


def _scalar(path: Path, arrays: Mapping[str, Array], name: str) -> int:
    array = arrays[name]
    if array.size != 1 or array.dtype.kind not in "biu":
        raise ValueError(
            f"{path}: expected one integer in '{name}', got {array.dtype} {array.shape}."
        )
    return int(array.reshape(()))


def _is_directed(path: Path, arrays: Mapping[str, Array]) -> bool:
    directed = _scalar(path, arrays, "directed") if "directed" in arrays else 0
    if directed not in (0, 1):
        raise ValueError(
            f"{path}: expected 0 or 1 in 'directed', got {directed}. Write 1 if 'edge_index' holds "
            "every message, 0 if it holds each undirected edge once."
        )
    return directed == 1


def _features(path: Path, arrays: Mapping[str, Array]) -> Array | sp.csr_array:
    if "x" in arrays:
        return arrays["x"]
    missing = [name for name in _CSR_PARTS if name not in arrays]
    if missing:
        raise ValueError(f"{path}: expected 'x' or {', '.join(_CSR_PARTS)}, {missing} missing.")
    data, indices, indptr, shape = (arrays[name] for name in _CSR_PARTS)
    if data.size == 1:
        data = np.full(indices.size, data.reshape(())[()], dtype=data.dtype)
    try:
        # int32 before scipy sees them: it would read 16-bit indices in the wrong width.
        rows = indptr.astype(np.int64 if indices.size >= 2**31 else np.int32)
        matrix = sp.csr_array((data, indices.astype(rows.dtype), rows), shape=tuple(shape.tolist()))
        matrix.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path}: expected a CSR matrix in 'x_data', 'x_indices', 'x_indptr', 'x_shape', "
            f"but they do not fit ({error})."
        ) from error
    return matrix


def _labels(path: Path, arrays: Mapping[str, Array], target: str | None) -> Array:
    if target not in (None, "y", "y_multi"):
        raise ValueError(f"{path}: expected 'y' or 'y_multi' for 'target', got {target!r}.")
    name = target or ("y" if "y" in arrays else "y_multi")
    if name not in arrays:
        raise ValueError(f"{path}: expected labels in '{name}', but there is no such array.")
    return arrays[name]
