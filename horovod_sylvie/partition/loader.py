"""Reading one rank's piece from a partition directory, trusting nothing.

Here: `load_partition`. Not here: the header (header.py), layout and hashes
(layout.py), the checks on the tensors (local_partition.py).

Shape letters: N nodes, I inner, K split columns.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .graph import Array, dense_rows
from .header import check_version, damaged_error, read_header, read_json, rerun_command
from .layout import META_NAME, hash_file, hash_meta, rank_directory_name
from .local_partition import Partition

_INDEX_ARRAYS = ("inner_ids", "halo_ids", "send_index", "edge_index")


def load_partition(
    directory: str | os.PathLike[str],
    rank: int,
    num_parts: int,
    *,
    split: int = 0,
    check_hash: bool = True,
) -> Partition:
    """Load the piece of one rank.

    Args:
        directory: What `partition_graph` wrote.
        rank: The rank whose piece to load.
        num_parts: How many ranks are running, P.
        split: Column of the masks, for graphs with several splits.
        check_hash: Whether to hash every file; sizes, shapes and ranges are checked in any case.

    Returns:
        The checked partition, on the CPU.

    Raises:
        ValueError: The directory is missing or not a partitioning, it was made for another number
            of ranks, or `rank` or `split` is out of range.
        RuntimeError: The directory is damaged, mixed up or of another format version.
    """
    folder = Path(directory)
    header = read_header(folder, num_parts)
    _check_request(header, folder, rank, num_parts, split)
    meta = _read_meta(header, folder, rank)
    arrays = {
        name: _read_array(folder, meta, name, check_hash=check_hash) for name in meta["arrays"]
    }
    try:
        partition = _assemble(header, meta, arrays, split)
        partition.validate()
    except ValueError as error:
        cure = rerun_command(folder, num_parts, overwrite=True)
        raise RuntimeError(f"load_partition: {folder} is damaged. {error} {cure}.") from error
    return partition


def _check_request(
    header: dict[str, Any], folder: Path, rank: int, num_parts: int, split: int
) -> None:
    made_for = header["num_parts"]
    if made_for != num_parts:
        raise ValueError(
            f"load_partition: expected as many ranks as parts, got {folder} partitioned for "
            f"{made_for}, running on {num_parts}. "
            f"{rerun_command(folder, num_parts, overwrite=True)}, or start "
            f"`horovodrun -np {made_for}`."
        )
    if not 0 <= rank < num_parts:
        raise ValueError(f"load_partition: expected 0 to {num_parts - 1} for 'rank', got {rank}.")
    num_splits = len(header["graph"]["num_train"])
    if not 0 <= split < num_splits:
        raise ValueError(
            f"load_partition: expected 0 to {num_splits - 1} for 'split', got {split}. "
            f"{folder} has {num_splits} split column(s)."
        )


def _read_meta(header: dict[str, Any], folder: Path, rank: int) -> dict[str, Any]:
    path = folder / rank_directory_name(rank) / META_NAME
    label, num_parts = f"{path.parent.name}/{META_NAME}", header["num_parts"]
    if not path.is_file():
        raise damaged_error(folder, label, "it is missing", num_parts)
    meta = read_json(path, folder, num_parts)
    check_version(meta, path, folder, num_parts)
    if meta.get("rank") != rank:
        why = f"it belongs to rank {meta.get('rank')}, expected rank {rank}"
        raise damaged_error(folder, label, why, num_parts)
    if meta.get("digest") != header["digest"]:
        why = "it belongs to another partitioning (its digest differs)"
        raise damaged_error(folder, label, why, num_parts)
    if hash_meta(meta) != header["ranks"][rank]:
        raise damaged_error(folder, label, "it was changed", num_parts)
    return meta


def _read_array(folder: Path, meta: dict[str, Any], name: str, *, check_hash: bool) -> Array:
    path = folder / rank_directory_name(meta["rank"]) / f"{name}.npy"
    label = f"{path.parent.name}/{path.name}"
    num_parts, entry = meta["num_parts"], meta["arrays"][name]
    if not path.is_file():
        raise damaged_error(folder, label, "it is missing", num_parts)
    num_bytes = path.stat().st_size
    if num_bytes != entry["bytes"]:
        why = f"it has {num_bytes} bytes, expected {entry['bytes']}"
        raise damaged_error(folder, label, why, num_parts)
    if check_hash and hash_file(path) != entry["blake2b"]:
        why = "its contents were changed (blake2b differs)"
        raise damaged_error(folder, label, why, num_parts)
    try:
        array: Array = np.load(path, allow_pickle=False)
    except ValueError as error:
        why = f"it is no .npy array ({error})"
        raise damaged_error(folder, label, why, num_parts) from error
    if array.dtype.str != entry["dtype"] or list(array.shape) != entry["shape"]:
        why = f"it holds {array.dtype.str} {array.shape}"
        raise damaged_error(folder, label, why, num_parts)
    return array


def _assemble(
    header: dict[str, Any], meta: dict[str, Any], arrays: dict[str, Array], split: int
) -> Partition:
    facts, counts = header["graph"], meta["counts"]
    tensors = {name: torch.from_numpy(arrays[name].astype(np.int64)) for name in _INDEX_ARRAYS}
    label_dtype = np.float32 if facts["multilabel"] else np.int64
    return Partition(
        rank=meta["rank"],
        num_parts=header["num_parts"],
        digest=header["digest"],
        num_nodes_global=facts["num_nodes"],
        num_classes=facts["num_classes"],
        multilabel=facts["multilabel"],
        num_train_global=facts["num_train"][split],
        num_val_global=facts["num_val"][split],
        num_test_global=facts["num_test"][split],
        recv_splits=tuple(counts["recv_splits"]),
        send_splits=tuple(counts["send_splits"]),
        edge_weight=_optional(arrays, "edge_weight"),
        edge_attr=_optional(arrays, "edge_attr"),
        in_weight=torch.from_numpy(arrays["in_weight"]),
        loop_weight=torch.from_numpy(arrays["loop_weight"]),
        loop_weight_total=torch.from_numpy(arrays["loop_weight_total"]),
        x=torch.from_numpy(_features(arrays, facts["num_features"])),
        y=torch.from_numpy(arrays["y"].astype(label_dtype)),
        train_mask=_column(arrays["train_mask"], split),
        val_mask=_column(arrays["val_mask"], split),
        test_mask=_column(arrays["test_mask"], split),
        **tensors,
    )


def _features(arrays: dict[str, Array], num_features: int) -> Array:
    if "x" in arrays:
        return arrays["x"].astype(np.float32)
    indptr = arrays["x_indptr"]
    matrix = sp.csr_array(
        (arrays["x_data"], arrays["x_indices"], indptr), shape=(indptr.size - 1, num_features)
    )
    # With hashing switched off, a damaged file could make scipy write outside the dense array.
    matrix.check_format(full_check=True)
    return dense_rows(matrix)


def _optional(arrays: dict[str, Array], name: str) -> Tensor | None:
    return torch.from_numpy(arrays[name]) if name in arrays else None


def _column(mask: Array, split: int) -> Tensor:
    return torch.from_numpy(mask[:, split if mask.shape[1] > 1 else 0].copy())
