"""The directory of a report: found fit before training, and written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PAGE: Final = "report.html"
FIGURES: Final = "report.json"


def prepare_directory(directory: Path) -> None:
    """Make a directory, unless it is there, and raise where a report could not be written.

    Raises:
        OSError: It is a file or lies below one, cannot be made or written to, or what would be
            written is a directory.
    """
    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(
            f"RunReport: expected a directory for 'directory', got the file {directory}. Name "
            "another."
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise OSError(
            f"RunReport: expected a directory that rank 0 can write to for 'directory', got "
            f"{directory}: {error.strerror}. Name another, or change its permissions."
        ) from error
    for name in (PAGE, FIGURES):
        if (directory / name).is_dir():
            raise IsADirectoryError(
                f"RunReport: expected a file or nothing at {directory / name}, got a directory. "
                "Remove it, or name another 'directory'."
            )


def write_files(directory: Path, texts: Mapping[str, str]) -> None:
    """Write files, each of them whole or not at all; all are on the disk before one has its name.

    Args:
        directory: Where.
        texts: By file name.

    Raises:
        OSError: A file cannot be written; the text has its name. What was there before is whole.
    """
    partial = {name: directory / f".{name}.{os.getpid()}.partial" for name in texts}
    try:
        for name, path in partial.items():
            _write_through(path, texts[name], directory / name)
        for name, path in partial.items():
            path.replace(directory / name)
    finally:
        for path in partial.values():
            path.unlink(missing_ok=True)


def _write_through(path: Path, text: str, wanted: Path) -> None:
    """Write a file, to the disk itself; errors are about the file that is wanted in the end."""
    try:
        with path.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:  # that of a write does not say where
        raise OSError(
            f"RunReport: cannot write {wanted}: {error.strerror}. What was there before is whole."
        ) from error
