"""The header of a partitioning, and the errors that reading one can end in.

Here: `read_header`. Not here: the pieces (loader.py), the layout (layout.py).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .layout import FORMAT, HEADER_NAME, VERSION, hash_header


def is_partition(directory: str | os.PathLike[str]) -> bool:
    """Return whether `directory` looks like a partitioning: it holds a header."""
    return (Path(directory) / HEADER_NAME).is_file()


def read_header(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Read and verify partition.json.

    Args:
        directory: A partition directory.

    Returns:
        The header: format, version, num_parts, graph, book, ranks, digest, report.

    Raises:
        ValueError: The directory is missing or is not a partitioning.
        RuntimeError: It has another format version, or the header was changed.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise ValueError(
            f"load_partition: expected a directory for 'directory', got {folder}, which does not "
            f"exist here. {rerun_command(folder, 'P')}, on a disk that every rank sees."
        )
    if not is_partition(folder):
        raise ValueError(
            f"load_partition: expected a partition directory for 'directory', got {folder}, which "
            f"has no {HEADER_NAME}. {rerun_command(folder, 'P')}."
        )
    header = read_json(folder / HEADER_NAME, folder)
    check_version(header, folder / HEADER_NAME, folder)
    if header.get("digest") != hash_header(header):
        raise damaged_error(folder, HEADER_NAME, "its digest does not fit its contents")
    return header


def read_json(path: Path, folder: Path) -> dict[str, Any]:
    """Return the JSON object in a file of the partitioning at `folder`.

    Raises:
        RuntimeError: The file is damaged.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise damaged_error(folder, path.name, f"it cannot be read ({error})") from error
    if not isinstance(value, dict):
        raise damaged_error(folder, path.name, "it is no JSON object")
    return value


def check_version(value: dict[str, Any], path: Path, folder: Path) -> None:
    """Check the format and the version that a JSON object names.

    Raises:
        ValueError: It is of another format.
        RuntimeError: It is of another version.
    """
    if value.get("format") != FORMAT:
        raise ValueError(
            f"load_partition: expected format {FORMAT!r} in {path}, got {value.get('format')!r}. "
            f"{rerun_command(folder, 'P')}."
        )
    if value.get("version") != VERSION:
        raise RuntimeError(
            f"load_partition: expected format version {VERSION} in {path}, got "
            f"{value.get('version')!r}. {rerun_command(folder, 'P')} with this version of "
            "horovod_sylvie."
        )


def damaged_error(folder: Path, name: str, why: str) -> RuntimeError:
    """Return the error for a file that is not as it was written, with the cure."""
    return RuntimeError(
        f"load_partition: expected {folder} as it was written, but {name}: {why}. "
        f"{rerun_command(folder, 'P')} --overwrite."
    )


def rerun_command(folder: Path, num_parts: int | str) -> str:
    """Return the sentence that says how to make the partitioning again."""
    return f"Run `python -m horovod_sylvie partition INPUT {folder} --parts {num_parts}`"
