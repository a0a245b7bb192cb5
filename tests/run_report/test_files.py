"""The directory is found fit or unfit before training, and files are whole or not there."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import pytest

from horovod_sylvie.run_report.files import FIGURES, PAGE, prepare_directory, write_files


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_directory_is_made_with_those_above_it(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    prepare_directory(directory)
    assert names_in(directory) == []
    prepare_directory(directory)


def test_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=r"expected a directory .* got the file .*file\."):
        prepare_directory(tmp_path / "file")
    with pytest.raises(OSError, match="can write to for 'directory', got .*file/below: Not a dir"):
        prepare_directory(tmp_path / "file" / "below")


def test_directory_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: Any) -> NoReturn:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", fail)  # root may write everywhere
    with pytest.raises(OSError, match=f"got {tmp_path}: Read-only file system. Name another"):
        prepare_directory(tmp_path)


@pytest.mark.parametrize("name", [PAGE, FIGURES])
def test_directory_in_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(IsADirectoryError, match=f"a file or nothing at .*{name}, got a directory"):
        prepare_directory(tmp_path)


def test_files_are_written_and_replaced(tmp_path: Path) -> None:
    for text in ("first é", "second"):
        write_files(tmp_path, {"a": text, "b": f"{text} too"})
        assert (tmp_path / "a").read_text(encoding="utf-8") == text
        assert (tmp_path / "b").read_text(encoding="utf-8") == f"{text} too"
    assert names_in(tmp_path) == ["a", "b"]


def test_files_that_cannot_all_be_written_leave_those_before(tmp_path: Path) -> None:
    write_files(tmp_path, {"a": "before", "b": "before"})
    with pytest.raises(UnicodeEncodeError):
        write_files(tmp_path, {"a": "behind", "b": "\ud800"})
    assert {(tmp_path / name).read_text() for name in "ab"} == {"before"}
    assert names_in(tmp_path) == ["a", "b"]
