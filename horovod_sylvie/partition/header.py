"""The header of a partitioning, and the errors that reading one can end in.

Here: `read_header`. Not here: the pieces (loader.py), the layout (layout.py).
"""

from __future__ import annotations

import json
import math
import os
import shlex
from pathlib import Path
from typing import Any

from .layout import FORMAT, HEADER_NAME, REPLACED, VERSION, hash_header, siblings


def is_partition(directory: str | os.PathLike[str]) -> bool:
    """Return whether `directory` looks like a partitioning: it holds a header."""
    return (Path(directory) / HEADER_NAME).is_file()


def read_header(directory: str | os.PathLike[str], num_parts: int) -> dict[str, Any]:
    """Read and verify partition.json.

    Args:
        directory: A partition directory.
        num_parts: How many ranks are running: what errors say to partition for.

    Returns:
        The header: format, version, num_parts, graph, book, ranks, digest, report.

    Raises:
        ValueError: The directory is missing or is not a partitioning.
        RuntimeError: It has another format version, or the header was changed.
    """
    folder = Path(directory)
    set_aside = siblings(folder, REPLACED)
    if not folder.is_dir() and set_aside:
        raise ValueError(
            f"load_partition: expected a directory for 'directory', got {folder}, which a run that "
            f"was to replace it has moved to {set_aside[-1]}. If that run has been killed, rename "
            "it back."
        )
    if not folder.is_dir():
        raise ValueError(
            f"load_partition: expected a directory for 'directory', got {folder}, which does not "
            f"exist here. {rerun_command(folder, num_parts, overwrite=False)}, on a disk that "
            "every rank sees."
        )
    if not is_partition(folder):
        raise ValueError(
            f"load_partition: expected a partition directory for 'directory', got {folder}, which "
            f"has no {HEADER_NAME}. {rerun_command('OUTDIR', num_parts, overwrite=False)} with a "
            "new path for OUTDIR, and load that."
        )
    header = read_json(folder / HEADER_NAME, folder, num_parts)
    check_version(header, folder / HEADER_NAME, folder, num_parts)
    if header.get("digest") != hash_header(header):
        raise damaged_error(folder, HEADER_NAME, "its digest does not fit its contents", num_parts)
    return header


def read_json(path: Path, folder: Path, num_parts: int) -> dict[str, Any]:
    """Return the JSON object in a file of the partitioning at `folder`, made for `num_parts`.

    Raises:
        RuntimeError: The file is damaged.
    """
    label = path.relative_to(folder).as_posix()
    try:
        text = path.read_text(encoding="utf-8")
        value = json.loads(text, parse_float=_finite_number, parse_constant=_finite_number)
    except (ValueError, OSError) as error:
        why = f"it cannot be read ({error})"
        raise damaged_error(folder, label, why, num_parts) from error
    if not isinstance(value, dict):
        raise damaged_error(folder, label, "it is no JSON object", num_parts)
    return value


def check_version(value: dict[str, Any], path: Path, folder: Path, num_parts: int) -> None:
    """Check the format and the version that a JSON object names.

    Raises:
        ValueError: It is of another format.
        RuntimeError: It is of another version.
    """
    if value.get("format") != FORMAT:
        raise ValueError(
            f"load_partition: expected format {FORMAT!r} in {path}, got {value.get('format')!r}. "
            f"{rerun_command(folder, num_parts, overwrite=True)}."
        )
    if value.get("version") != VERSION:
        raise RuntimeError(
            f"load_partition: expected format version {VERSION} in {path}, got "
            f"{value.get('version')!r}. {rerun_command(folder, num_parts, overwrite=True)} with "
            "this version of horovod_sylvie."
        )


def damaged_error(folder: Path, name: str, why: str, num_parts: int) -> RuntimeError:
    """Return the error for a file that is not as it was written, with the cure."""
    return RuntimeError(
        f"load_partition: expected {folder} as it was written, but {name}: {why}. "
        f"{rerun_command(folder, num_parts, overwrite=True)}."
    )


def rerun_command(directory: str | os.PathLike[str], num_parts: int, *, overwrite: bool) -> str:
    """Return the sentence that says how to make a partitioning (again).

    Args:
        directory: Where it shall be.
        num_parts: For how many ranks.
        overwrite: Whether there is one already, which has to go.

    Returns:
        The sentence without its full stop; once INPUT is replaced, a shell runs the command in it.
    """
    options = f"--parts {num_parts}" + (" --overwrite" if overwrite else "")
    path = shlex.quote(os.fspath(directory))
    return f"Run `python -m horovod_sylvie partition INPUT {path} {options}`"


def _finite_number(text: str) -> float:
    """Read a number of a JSON file; NaN and infinities, which JSON has not, cannot be hashed."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text}")
    return value
