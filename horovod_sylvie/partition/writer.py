"""Writing a partitioning atomically.

Here: `PartitionWriter`. Not here: what the arrays are (partitioner.py), layout and hashes
(layout.py), reading a rank back (loader.py).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .durable_files import lock_directory, sync_path, sync_tree, write_array, write_json
from .graph import Array
from .layout import (
    BOOK_NAME,
    FORMAT,
    HEADER_NAME,
    META_NAME,
    PARTIAL,
    REPLACED,
    VERSION,
    hash_header,
    hash_meta,
    rank_directory_name,
    siblings,
)


class PartitionWriter:
    """Writes a partitioning into a sibling directory and renames it into place when whole.

    Use with `contextlib.closing`. Invariant: until `finish` returns, nothing exists at `directory`
    that was not there before; `close` removes what was written and not put into place.
    """

    def __init__(self, directory: Path, *, overwrite: bool) -> None:
        """Refuse what must not be replaced, then make the temporary directory.

        Args:
            directory: Where the partitioning shall be.
            overwrite: Whether a partitioning that is there may be replaced.

        Raises:
            ValueError: `directory` exists and may not be replaced.
            OSError: The parent cannot be written to.
        """
        self._directory = Path.cwd() / directory
        self._parent = self._directory.parent
        self._put_back()
        check_replaceable(self._directory, overwrite=overwrite)
        self._parent.mkdir(parents=True, exist_ok=True)
        self._remove_abandoned()
        self._temporary = self._sibling(PARTIAL)
        self._temporary.mkdir()
        self._lock = lock_directory(self._temporary)
        self._overwrite = overwrite
        self._metas: list[dict[str, Any]] = []

    def close(self) -> None:
        """Remove what was written, unless `finish` renamed it into place."""
        os.close(self._lock)
        shutil.rmtree(self._temporary, ignore_errors=True)

    def write_rank(self, counts: dict[str, Any], arrays: dict[str, Array]) -> None:
        """Write the arrays of the next rank; its meta.json waits for the digest.

        Args:
            counts: Numbers of the rank, for its meta.json.
            arrays: The rank's arrays by name.
        """
        rank = len(self._metas)
        folder = self._temporary / rank_directory_name(rank)
        folder.mkdir()
        table = {name: write_array(folder / f"{name}.npy", value) for name, value in arrays.items()}
        self._metas.append({"rank": rank, "counts": counts, "arrays": table})

    def write_book(self, owners: Array) -> str:
        """Write the partition book and return its hash."""
        entry = write_array(self._temporary / BOOK_NAME, owners.astype(np.int32, copy=False))
        return str(entry["blake2b"])

    def seal(self, graph_facts: dict[str, Any], book_hash: str) -> dict[str, Any]:
        """Hash what was written and write every meta.json.

        Args:
            graph_facts: Facts of the whole graph, the same on every rank.
            book_hash: What `write_book` returned.

        Returns:
            The header, its digest included, for `finish`.
        """
        shared = {"format": FORMAT, "version": VERSION, "num_parts": len(self._metas)}
        shared["graph"] = graph_facts
        metas = [{**shared, **meta} for meta in self._metas]
        header = {**shared, "book": book_hash, "ranks": [hash_meta(meta) for meta in metas]}
        header["digest"] = hash_header(header)
        for meta in metas:
            folder = self._temporary / rank_directory_name(meta["rank"])
            write_json(folder / META_NAME, {**meta, "digest": header["digest"]})
        return header

    def finish(self, header: dict[str, Any], report: dict[str, Any]) -> None:
        """Write the header and put the partitioning into place.

        Args:
            header: What `seal` returned.
            report: The report, kept for people; it is no part of the digest.

        Raises:
            ValueError: Something appeared at the directory in the meantime.
        """
        write_json(self._temporary / HEADER_NAME, {**header, "report": report})
        sync_tree(self._temporary)
        check_replaceable(self._directory, overwrite=self._overwrite)
        with self._set_aside():
            self._temporary.rename(self._directory)
        sync_path(self._parent)

    @contextlib.contextmanager
    def _set_aside(self) -> Iterator[None]:
        """Move the old partitioning away, and back again if the new one cannot take its place."""
        if not self._directory.exists():
            yield
            return
        old = self._sibling(REPLACED)
        lock = lock_directory(self._directory)  # it stays with the directory, whatever its name
        try:
            self._directory.rename(old)
            try:
                yield
            except BaseException:
                old.rename(self._directory)
                raise
            shutil.rmtree(old)
        finally:
            os.close(lock)

    def _put_back(self) -> None:
        """Put the old partitioning back where a run was killed before the new one was in place."""
        for path in self._abandoned(REPLACED):
            if not os.path.lexists(self._directory):
                path.rename(self._directory)

    def _remove_abandoned(self) -> None:
        """Remove what a killed run left beside `directory`."""
        for path in [*self._abandoned(PARTIAL), *self._abandoned(REPLACED)]:
            shutil.rmtree(path, ignore_errors=True)

    def _abandoned(self, kind: str) -> list[Path]:
        """Return what killed runs left beside `directory`; a live run holds a lock on its own."""
        return [path for path in siblings(self._directory, kind) if not _is_locked(path)]

    def _sibling(self, kind: str) -> Path:
        return self._parent / f".{self._directory.name}.{kind}-{secrets.token_hex(8)}"


def _is_locked(path: Path) -> bool:
    try:
        os.close(lock_directory(path))
    except OSError:
        return True
    return False


def check_replaceable(directory: Path, *, overwrite: bool) -> None:
    """Check that writing a partitioning at `directory` destroys nothing unasked.

    An empty directory is free. With `overwrite`, an earlier partitioning may go; other files never.

    Raises:
        ValueError: The directory may not be replaced.
    """
    if not os.path.lexists(directory):
        return
    if directory.is_dir() and not directory.is_symlink():
        if not any(directory.iterdir()):
            return
        if (directory / HEADER_NAME).is_file():
            if overwrite:
                return
            raise ValueError(
                f"partition_graph: expected a new path for 'directory', got {directory}, which "
                "holds a partitioning. Use --overwrite (overwrite=True) to replace it, or another "
                "path."
            )
    raise ValueError(
        f"partition_graph: expected a new path for 'directory', got {directory}, which holds "
        "something other than a partitioning and is never replaced. Choose another path."
    )
