"""Partition directories are written whole or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from horovod_sylvie.partition.loader import load_partition
from horovod_sylvie.partition.partitioner import partition_graph
from horovod_sylvie.partition.writer import PartitionWriter

from .partition_cases import build_graph, check_identities, load_all


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """Return a directory partitioned for 3 ranks."""
    graph = build_graph(40, 150, mirror=True, weighted=True, attributed=True, num_splits=2)
    partition_graph(graph, tmp_path / "parts", 3)
    return tmp_path / "parts"


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_write_existing_partitioning_is_refused_and_kept(parts: Path) -> None:
    before = load_partition(parts, 0, 3).digest
    with pytest.raises(ValueError, match="which holds a partitioning. Use --overwrite"):
        partition_graph(build_graph(seed=9), parts, 3)
    assert load_partition(parts, 0, 3).digest == before


def test_write_overwrite_replaces_it_and_leaves_nothing_beside(parts: Path) -> None:
    graph = build_graph(seed=9)
    partition_graph(graph, parts, 2, overwrite=True)
    check_identities(graph, load_all(parts, 2))
    assert names_in(parts.parent) == ["parts"]
    assert not (parts / "rank-00002").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_write_directory_with_other_files_is_never_replaced(
    tmp_path: Path, overwrite: bool
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="something other than a partitioning"):
        partition_graph(build_graph(), tmp_path, 2, overwrite=overwrite)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_write_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("")
    with pytest.raises(ValueError, match="something other than a partitioning"):
        partition_graph(build_graph(), tmp_path / "p", 2, overwrite=True)


def test_write_into_an_empty_directory_and_missing_parents_works(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "a" / "b"):
        partition_graph(build_graph(), path, 2)
        load_all(path, 2)


@pytest.mark.parametrize("failing", ["write_rank", "write_book", "seal", "finish"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_write_interrupted_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, error: BaseException
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(PartitionWriter, failing, fail)
    with pytest.raises(type(error)):
        partition_graph(build_graph(), tmp_path / "p", 2)
    assert names_in(tmp_path) == []


def test_write_interrupted_overwrite_keeps_the_old(
    parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load_partition(parts, 0, 3).digest
    rename = Path.rename

    def fail_for_new(self: Path, target: Path) -> Path:
        if ".partial-" in self.name:
            raise OSError("no rename")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_for_new)
    with pytest.raises(OSError, match="no rename"):
        partition_graph(build_graph(seed=9), parts, 3, overwrite=True)
    assert load_partition(parts, 0, 3).digest == before
    assert names_in(parts.parent) == ["parts"]


KILLED_PROGRAM = """
import os, signal, sys
from horovod_sylvie.partition.partitioner import partition_graph
from horovod_sylvie.partition.writer import PartitionWriter

write_rank = PartitionWriter.write_rank
def write_one_rank_and_die(self, counts, arrays):
    write_rank(self, counts, arrays)
    os.kill(os.getpid(), signal.SIGKILL)
PartitionWriter.write_rank = write_one_rank_and_die
partition_graph("synthetic:nodes=100,features=2", sys.argv[1], 2, method="random")
"""


def test_write_killed_leaves_no_directory_and_the_next_run_sweeps(tmp_path: Path) -> None:
    path = tmp_path / "p"
    done = subprocess.run(
        [sys.executable, "-c", KILLED_PROGRAM, str(path)],
        cwd=Path(__file__).parents[2],
        check=False,
        timeout=50,
    )
    assert done.returncode == -signal.SIGKILL
    assert not path.exists()
    assert len(names_in(tmp_path)) == 1
    partition_graph(build_graph(), path, 2)
    assert names_in(tmp_path) == ["p"]


KILLED_REPLACEMENT = """
import os, signal, sys
from pathlib import Path
from horovod_sylvie.partition.partitioner import partition_graph

rename = Path.rename
def rename_and_die(self, target):
    moment = "aside" if ".replaced-" in Path(target).name else "in place"
    moved = rename(self, target)
    if moment == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
    return moved
Path.rename = rename_and_die
graph = "synthetic:nodes=100,features=2"
partition_graph(graph, sys.argv[1], 2, method="random", overwrite=True)
"""


@pytest.mark.parametrize("moment", ["aside", "in place"])
def test_write_killed_while_it_replaces_loses_neither_and_the_next_run_sweeps(
    parts: Path, moment: str
) -> None:
    before = load_partition(parts, 0, 3).digest
    done = subprocess.run(
        [sys.executable, "-c", KILLED_REPLACEMENT, str(parts), moment],
        cwd=Path(__file__).parents[2],
        check=False,
        timeout=50,
    )
    assert done.returncode == -signal.SIGKILL
    (old,) = parts.parent.glob(".parts.replaced-*")
    assert load_partition(old, 0, 3).digest == before
    if moment == "aside":
        with pytest.raises(ValueError, match=r"moved to .*/\.parts\.replaced-.*rename it back"):
            load_partition(parts, 0, 3)
    else:
        load_partition(parts, 0, 2)
    with pytest.raises(ValueError, match="which holds a partitioning"):
        partition_graph(build_graph(seed=9), parts, 2)
    assert load_partition(parts, 0, 3 if moment == "aside" else 2).rank == 0
    partition_graph(build_graph(seed=9), parts, 2, overwrite=True)
    assert names_in(parts.parent) == ["parts"]


def test_write_two_runs_at_once_do_not_sweep_each_other(tmp_path: Path) -> None:
    first = PartitionWriter(tmp_path / "p", overwrite=False)
    partition_graph(build_graph(), tmp_path / "p", 2)
    assert len(names_in(tmp_path)) == 2
    first.write_rank({}, {})
    with pytest.raises(ValueError, match="holds a partitioning"):
        first.finish(first.seal({}, ""), {})
    first.close()
    load_all(tmp_path / "p", 2)
    assert names_in(tmp_path) == ["p"]
