"""Every file of a partition and of a checkpoint, damaged: refused by name, or the same values."""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import horovod_sylvie as hvs
from tests.faults import saved_training as training
from tests.partition.partition_cases import build_graph

NUM_RANKS = 2
FLIPS = 12  # of a file; the first and the last byte are among them


def damage(path: Path, twin: Path | None) -> Iterator[str]:
    """Damage a file in one way after the other; `twin` is that of the other rank."""
    original = path.read_bytes()
    drawn = random.Random(path.name)
    places = [0, len(original) - 1, *(drawn.randrange(len(original)) for _ in range(FLIPS - 2))]
    for place in places:
        changed = bytearray(original)
        changed[place] ^= 1 << drawn.randrange(8)
        path.write_bytes(changed)
        yield f"a bit of byte {place} is flipped"
    for length in (0, len(original) // 2, len(original) - 1):
        path.write_bytes(original[:length])
        yield f"cut to {length} bytes"
    path.write_bytes(original + b"\0")
    yield "a byte longer"
    path.unlink()
    yield "deleted"
    if twin is not None and twin.read_bytes() != original:
        shutil.copyfile(twin, path)
        yield "the other rank's"
    path.write_bytes(original)


def attempt(load: Callable[[], Any]) -> tuple[Any, str]:
    """Return what was loaded, or the message of a documented error."""
    try:
        return load(), ""
    except (ValueError, RuntimeError) as error:
        return None, str(error)


def check_each(directory: Path, load: Callable[[], Any], named: Callable[[Path], str]) -> set[str]:
    """Damage each file of a directory; return the names of those that were loaded all the same."""
    whole = load()
    unnoticed = set()
    for path in sorted(each for each in directory.rglob("*") if each.is_file()):
        other = str(path).replace("rank-00000", "rank-00001").replace("rank-0.pt", "rank-1.pt")
        for how in damage(path, Path(other) if other != str(path) else None):
            loaded, refused = attempt(load)
            if refused:
                assert named(path) in refused, f"{path}, {how}: {refused}"
            else:
                assert training.are_equal(loaded, whole), f"{path}, {how}: other values"
                unnoticed.add(path.name)
    assert training.are_equal(load(), whole)
    return unnoticed


def test_partition_with_a_damaged_file_is_refused_or_the_same(tmp_path: Path) -> None:
    graph = build_graph(40, 150, mirror=True, weighted=True, attributed=True, num_splits=2)
    hvs.partition_graph(graph, tmp_path / "parts", NUM_RANKS)

    def load() -> list[dict[str, Any]]:
        parts = [hvs.load_partition(tmp_path / "parts", rank, NUM_RANKS) for rank in range(2)]
        return [
            {each.name: getattr(part, each.name) for each in dataclasses.fields(part)}
            for part in parts
        ]

    def named(path: Path) -> str:
        return path.relative_to(tmp_path / "parts").as_posix()

    unnoticed = check_each(tmp_path / "parts", load, named)
    # No rank reads the book; the report in the header is for people, as spaces in JSON are
    assert unnoticed <= {"book.npy", "partition.json", "meta.json"}


def test_checkpoint_with_a_damaged_file_is_refused_or_the_same(tmp_path: Path) -> None:
    training.save(tmp_path)
    unnoticed = check_each(tmp_path, lambda: training.load(tmp_path), lambda path: path.name)
    assert unnoticed <= {"files.json"}  # spaces between words
