"""The checks that `Graph` makes of its arrays, each naming the graph and the array.

Here: one function per array, which returns the array in the dtype that `Graph` promises.
Not here: checks of one rank's piece (local_partition.py) or of files (the readers).

Shape letters: N nodes, E stored edges, F features, C classes, K split columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Array = npt.NDArray[Any]

MAX_NODES = 2**31 - 1
_MAX_CLASS = 2**31 - 1
# Finite checks go through this many elements at a time: a boolean copy of a large feature matrix
# would cost a quarter of the input again.
_CHUNK_ELEMENTS = 1 << 22


def node_count(name: str, num_nodes: object) -> int:
    """Check the number of nodes; return it as an int."""
    if isinstance(num_nodes, bool) or not isinstance(num_nodes, (int, np.integer)):
        raise TypeError(f"{name}: expected an integer for 'num_nodes', got {num_nodes!r}.")
    if not 0 <= num_nodes <= MAX_NODES:
        raise ValueError(
            f"{name}: expected 0 <= num_nodes < 2**31 for 'num_nodes', got {num_nodes}. "
            "Node ids are kept as int32."
        )
    return int(num_nodes)


def edges(name: str, edge_index: Array, num_nodes: int) -> Array:
    """Check the edge list; return it as int32. [2, E]."""
    array = np.asarray(edge_index)
    if array.dtype.kind not in "iu" and array.size > 0:
        raise TypeError(f"{name}: expected integer ids in 'edge_index', got dtype {array.dtype}.")
    if array.ndim != 2 or array.shape[0] != 2:
        raise ValueError(f"{name}: expected shape (2, E) for 'edge_index', got {array.shape}.")
    if array.size > 0:
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= num_nodes:
            raise ValueError(
                f"{name}: expected ids in [0, {num_nodes}) in 'edge_index', got {low} to {high}. "
                "Check 'num_nodes' and the file that the edges come from."
            )
    return np.ascontiguousarray(array, dtype=np.int32)


def features(name: str, x: Array | sp.csr_array, num_nodes: int) -> Array | sp.csr_array:
    """Check the features; float64 and wide integers become float32. [N, F]."""
    if sp.issparse(x):
        matrix = sp.csr_array(x)
        _check_rows(name, "x", matrix.shape, ("N", "F"), num_nodes)
        data = _as_feature_dtype(name, matrix.data)
        if data is matrix.data:
            return matrix
        return sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    array = np.asarray(x)
    _check_rows(name, "x", array.shape, ("N", "F"), num_nodes)
    return _as_feature_dtype(name, array)


def labels(name: str, y: Array, num_nodes: int) -> Array:
    """Check the labels; return [N] int64 or [N, C] float32 or uint8."""
    array = np.asarray(y)
    if array.ndim == 2 and array.shape[1] == 1 and array.dtype.kind in "iu":
        array = array[:, 0]
    if array.ndim == 2:
        return _label_columns(name, array, num_nodes)
    _check_rows(name, "y", array.shape, ("N",), num_nodes)
    if array.dtype.kind == "f":
        # Some sets mark "no label" with NaN in a float array; anything else that is not whole is a
        # mistake.
        array = np.where(np.isnan(array), -1.0, array)
        if not np.array_equal(array, np.floor(array)):
            raise ValueError(f"{name}: expected whole class numbers in 'y', got fractions.")
    elif array.dtype.kind not in "biu":
        raise TypeError(f"{name}: expected integer classes in 'y', got dtype {array.dtype}.")
    if array.size > 0 and (array.min() < -1 or array.max() > _MAX_CLASS):
        raise ValueError(
            f"{name}: expected classes from 0 to {_MAX_CLASS}, or -1 for 'no label', in 'y', "
            f"got {array.min()} to {array.max()}. Number the classes from 0."
        )
    return np.ascontiguousarray(array, dtype=np.int64)


def mask(name: str, field: str, values: Array, num_nodes: int) -> Array:
    """Check a node mask; return it as [N, K] bool."""
    array = np.asarray(values)
    if array.ndim == 1:
        array = array[:, np.newaxis]
    _check_rows(name, field, array.shape, ("N", "K"), num_nodes)
    if array.shape[1] == 0:
        raise ValueError(
            f"{name}: expected at least one column in '{field}', got shape {array.shape}."
        )
    if array.dtype.kind not in "biu":
        raise TypeError(
            f"{name}: expected bool, or integers 0 and 1, in '{field}', got {array.dtype}."
        )
    if array.dtype.kind != "b" and array.size > 0 and (array.min() < 0 or array.max() > 1):
        raise ValueError(
            f"{name}: expected 0 and 1 in '{field}', got {array.min()} to {array.max()}. "
            "A list of node ids must be turned into a mask of length N."
        )
    return np.ascontiguousarray(array, dtype=np.bool_)


def split_columns(name: str, *masks: Array) -> None:
    """Check that the masks have the same number of columns, or one."""
    columns = [array.shape[1] for array in masks]
    wide = {count for count in columns if count != 1}
    if len(wide) > 1:
        raise ValueError(
            f"{name}: expected the same number of split columns (or one) in 'train_mask', "
            f"'val_mask', 'test_mask', got {columns}."
        )


def edge_weight(name: str, values: Array, num_edges: int) -> Array:
    """Check the edge weights; return them as [E] float32."""
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    _check_rows(name, "edge_weight", array.shape, ("E",), num_edges)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected numbers in 'edge_weight', got dtype {array.dtype}.")
    with np.errstate(over="ignore"):  # what overflows float32 is reported below, as not finite
        array = np.ascontiguousarray(array, dtype=np.float32)
    _check_finite(name, "edge_weight", array)
    return array


def edge_attr(name: str, values: Array, num_edges: int) -> Array:
    """Check the edge attributes; return them with their dtype, float64 as float32. [E, ...]."""
    array = np.asarray(values)
    _check_rows(name, "edge_attr", array.shape, ("E", *("...",) * (array.ndim - 1)), num_edges)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected numbers in 'edge_attr', got dtype {array.dtype}.")
    if array.dtype == np.float64:
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
    _check_finite(name, "edge_attr", array)
    return np.ascontiguousarray(array)


def _label_columns(name: str, array: Array, num_nodes: int) -> Array:
    _check_rows(name, "y", array.shape, ("N", "C"), num_nodes)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected numbers in multi-label 'y', got dtype {array.dtype}.")
    if array.size > 0 and not (array.min() >= 0 and array.max() <= 1):
        raise ValueError(
            f"{name}: expected values in [0, 1] in multi-label 'y', got {array.min()} to "
            f"{array.max()}."
        )
    return np.ascontiguousarray(array, dtype=np.float32 if array.dtype.kind == "f" else np.uint8)


def _as_feature_dtype(name: str, values: Array) -> Array:
    """Return features in float32, float16, uint8 or int16/int8: all exact in float32."""
    if values.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected numbers in 'x', got dtype {values.dtype}.")
    if values.dtype.kind == "b":
        return values.astype(np.uint8)
    if values.dtype.itemsize > 4 or (values.dtype.kind in "iu" and values.dtype.itemsize == 4):
        with np.errstate(over="ignore"):
            values = values.astype(np.float32)
    _check_finite(name, "x", values)
    return values


def _check_rows(
    name: str, field: str, shape: tuple[int, ...], wanted: tuple[str, ...], size: int
) -> None:
    """Check the number of dimensions and the length of the first; `wanted` names the dimensions."""
    if len(shape) != len(wanted) or shape[0] != size:
        text = ", ".join(wanted) + ("," if len(wanted) == 1 else "")
        raise ValueError(
            f"{name}: expected shape ({text}) with {wanted[0]} = {size} for '{field}', got {shape}."
        )


def _check_finite(name: str, field: str, values: Array) -> None:
    if values.dtype.kind != "f" or values.size == 0:
        return
    rows = max(1, _CHUNK_ELEMENTS // max(1, values.size // values.shape[0]))
    for start in range(0, values.shape[0], rows):
        finite = np.isfinite(values[start : start + rows])
        if not finite.all():
            bad = start + int(np.argwhere(~finite)[0][0])
            raise ValueError(
                f"{name}: expected finite numbers in '{field}', got NaN or Inf (or too large for "
                f"float32) at index {bad}. Clean the data; a mean over neighbours would spread it."
            )
