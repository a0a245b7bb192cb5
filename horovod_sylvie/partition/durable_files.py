"""Files and directories that survive a crash once written.

Here: writing arrays and JSON, syncing and locking directories. Not here: which files make
a partitioning (layout.py, writer.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .graph import Array
from .layout import HASH_BYTES


class _HashingFile:
    """A file that hashes and counts what numpy writes to it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.hash = hashlib.blake2b(digest_size=HASH_BYTES)
        self.num_bytes = 0

    def write(self, data: bytes) -> int:
        """Write, hash and count `data`."""
        self.hash.update(data)
        self.num_bytes += len(data)
        return self._file.write(data)


def write_array(path: Path, array: Array) -> dict[str, Any]:
    """Write one .npy file; return its entry in the table of arrays."""
    with _naming(path), path.open("xb") as file:
        hashing = _HashingFile(file)
        np.lib.format.write_array(hashing, np.ascontiguousarray(array), allow_pickle=False)
    return {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "bytes": hashing.num_bytes,
        "blake2b": hashing.hash.hexdigest(),
    }


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write one JSON file for people and programs."""
    with _naming(path), path.open("x", encoding="utf-8") as file:
        json.dump(value, file, indent=1, allow_nan=False)
        file.write("\n")


def sync_tree(directory: Path) -> None:
    """Make everything below a directory durable, and its own names.

    All files are written first and synced together: one by one, each would wait for the disk.
    """
    for folder, _, names in os.walk(directory, topdown=False):
        for name in names:
            sync_path(Path(folder) / name)
        sync_path(Path(folder))


def sync_path(path: Path) -> None:
    """Make the bytes of a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with _naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_directory(path: Path) -> int:
    """Open and lock a directory; the lock goes with the process, however it ends."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let an error name the file: that of a write, when the disk is full, does not by itself."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise
