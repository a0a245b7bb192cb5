"""A partitioning on disk: its layout, its file names and its hashes.

Here: what writer and reader must agree on. Not here: writing (writer.py), reading
(loader.py), what the arrays mean (partitioner.py).

    OUTDIR/partition.json        format, version, num_parts, facts of the graph, hash of the book
                                 and of every rank, digest of all these; the report (not hashed)
    OUTDIR/book.npy              partition book: owner of every global node. [N], int32
    OUTDIR/rank-00000/meta.json  format, version, rank, num_parts, digest, facts, counts, and a
                                 table of arrays: dtype, shape, bytes and blake2b of each file
    OUTDIR/rank-00000/*.npy      one file per array, numpy format, never pickled

The digest is a content hash of everything that ranks must agree on. A rank's hash covers its
meta.json without the digest, hence also its arrays; the digest covers the hashes of all ranks.
"""

from __future__ import annotations

import glob
import hashlib
import json
from pathlib import Path
from typing import Any

FORMAT = "horovod_sylvie.partition"
VERSION = 1
HEADER_NAME = "partition.json"
BOOK_NAME = "book.npy"
META_NAME = "meta.json"
PARTIAL, REPLACED = "partial", "replaced"  # hidden, beside OUTDIR, while it is written or replaced
HASH_BYTES = 16

_READ_BYTES = 1 << 20


def rank_directory_name(rank: int) -> str:
    """Return the name of a rank's directory."""
    return f"rank-{rank:05d}"


def siblings(directory: Path, kind: str) -> list[Path]:
    """Return the hidden directories of one kind beside a partitioning."""
    return sorted(directory.parent.glob(f"{glob.escape(f'.{directory.name}.{kind}-')}*"))


def hash_json(value: object) -> str:
    """Return the hash of a JSON value, whatever its layout on disk. Hex."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).hexdigest()


def hash_file(path: Path) -> str:
    """Return the hash of a file's bytes. Hex."""
    digest = hashlib.blake2b(digest_size=HASH_BYTES)
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def hash_header(header: dict[str, Any]) -> str:
    """Return the digest of a partitioning from its header, which holds it too. Hex."""
    return hash_json({k: v for k, v in header.items() if k not in ("digest", "report")})


def hash_meta(meta: dict[str, Any]) -> str:
    """Return the hash of a rank's meta.json, its digest left out. Hex."""
    return hash_json({k: v for k, v in meta.items() if k != "digest"})
