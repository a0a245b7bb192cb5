"""Partition directories that are not as they were written are refused, with what to run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from horovod_sylvie.__main__ import main
from horovod_sylvie.partition.header import is_partition, read_header
from horovod_sylvie.partition.layout import hash_header, hash_meta
from horovod_sylvie.partition.loader import load_partition
from horovod_sylvie.partition.partitioner import partition_graph

from .partition_cases import build_graph


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """Return a directory partitioned for 3 ranks."""
    graph = build_graph(40, 150, mirror=True, weighted=True, attributed=True, num_splits=2)
    partition_graph(graph, tmp_path / "parts", 3)
    return tmp_path / "parts"


def edit_json(path: Path, **changes: object) -> dict[str, object]:
    value = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps(value))
    return value


def array_names(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "rank-00001").glob("*.npy"))


def test_load_wrong_number_of_ranks_says_both_cures(parts: Path) -> None:
    with pytest.raises(ValueError, match="partitioned for 3, running on 2") as caught:
        load_partition(parts, 0, 2)
    assert "--parts 2" in str(caught.value)
    assert "horovodrun -np 3" in str(caught.value)


def test_load_missing_directory_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist here.*horovod_sylvie partition"):
        load_partition(tmp_path / "nowhere", 0, 2)


def test_load_other_directory_says_it_is_no_partitioning(tmp_path: Path) -> None:
    assert not is_partition(tmp_path)
    with pytest.raises(ValueError, match=r"has no partition\.json.*a new path for OUTDIR"):
        load_partition(tmp_path, 0, 2)


@pytest.mark.parametrize("rank", [-1, 3])
def test_load_rank_out_of_range_is_refused(parts: Path, rank: int) -> None:
    with pytest.raises(ValueError, match=f"expected 0 to 2 for 'rank', got {rank}"):
        load_partition(parts, rank, 3)


@pytest.mark.parametrize("split", [-1, 2])
def test_load_split_out_of_range_is_refused(parts: Path, split: int) -> None:
    with pytest.raises(ValueError, match=r"expected 0 to 1 for 'split'.*2 split column"):
        load_partition(parts, 0, 3, split=split)


def test_load_missing_rank_directory_is_refused(parts: Path) -> None:
    shutil.rmtree(parts / "rank-00001")
    with pytest.raises(RuntimeError, match=r"rank-00001/meta\.json: it is missing.*--overwrite"):
        load_partition(parts, 1, 3)
    load_partition(parts, 0, 3)


def test_load_every_array_deleted_truncated_or_changed_is_refused(parts: Path) -> None:
    for name in array_names(parts):
        path = parts / "rank-00001" / name
        original = path.read_bytes()
        path.unlink()
        with pytest.raises(RuntimeError, match=f"rank-00001/{name}: it is missing"):
            load_partition(parts, 1, 3)
        path.write_bytes(original[:-1])
        with pytest.raises(RuntimeError, match=f"{name}: it has {len(original) - 1} bytes"):
            load_partition(parts, 1, 3)
        for position in (0, len(original) // 2, len(original) - 1):
            changed = bytearray(original)
            changed[position] ^= 0x10
            path.write_bytes(changed)
            with pytest.raises(RuntimeError, match=f"{name}: its contents were changed"):
                load_partition(parts, 1, 3)
        path.write_bytes(original)
    load_partition(parts, 1, 3)


@pytest.mark.parametrize("name", ["inner_ids", "halo_ids", "send_index", "edge_index"])
@pytest.mark.parametrize("value", [-1, 2**31 - 1])
def test_load_ids_out_of_range_are_refused_without_hashing_too(
    parts: Path, name: str, value: int
) -> None:
    path = parts / "rank-00001" / f"{name}.npy"
    array = np.load(path)
    array.flat[-1] = value
    np.save(path, array)
    with pytest.raises(RuntimeError, match=f"is damaged.*'{name}'"):
        load_partition(parts, 1, 3, check_hash=False)


def test_load_sparse_column_out_of_range_is_refused_without_hashing_too(tmp_path: Path) -> None:
    partition_graph(build_graph(sparse=True), tmp_path / "p", 2)
    path = tmp_path / "p" / "rank-00000" / "x_indices.npy"
    indices = np.load(path)
    indices[0] = 10**6
    np.save(path, indices)
    with pytest.raises(RuntimeError, match="is damaged"):
        load_partition(tmp_path / "p", 0, 2, check_hash=False)


def test_load_file_that_is_no_array_is_refused_without_hashing_too(parts: Path) -> None:
    path = parts / "rank-00000" / "x.npy"
    path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(RuntimeError, match=r"x\.npy: it is no \.npy array"):
        load_partition(parts, 0, 3, check_hash=False)


def test_load_pickled_array_is_never_unpickled(parts: Path) -> None:
    path = parts / "rank-00000" / "x.npy"
    size = path.stat().st_size
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    path.write_bytes(path.read_bytes().ljust(size, b"\0"))
    with pytest.raises(RuntimeError, match="allow_pickle=False"):
        load_partition(parts, 0, 3, check_hash=False)


@pytest.mark.parametrize("name", ["partition.json", "rank-00001/meta.json"])
def test_load_wrong_version_is_refused(parts: Path, name: str) -> None:
    edit_json(parts / name, version=99)
    with pytest.raises(RuntimeError, match=r"expected format version 1 .* got 99.*Run `python -m"):
        load_partition(parts, 1, 3)


@pytest.mark.parametrize("name", ["partition.json", "rank-00001/meta.json"])
def test_load_foreign_json_is_refused(parts: Path, name: str) -> None:
    (parts / name).write_text('{"format": "else"}')
    with pytest.raises(ValueError, match="expected format 'horovod_sylvie.partition'"):
        load_partition(parts, 1, 3)


@pytest.mark.parametrize("text", ["", "{", "[1]", "\udc80"])
@pytest.mark.parametrize("name", ["partition.json", "rank-00001/meta.json"])
def test_load_broken_json_is_refused(parts: Path, name: str, text: str) -> None:
    (parts / name).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(RuntimeError, match=r"json: it (cannot be read|is no JSON object)"):
        load_partition(parts, 1, 3)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
@pytest.mark.parametrize("name", ["partition.json", "rank-00001/meta.json"])
def test_load_json_with_a_number_that_is_not_finite_is_refused(
    parts: Path, name: str, number: str
) -> None:
    path = parts / name
    path.write_text(path.read_text().rstrip().removesuffix("}") + f', "more": {number}}}')
    with pytest.raises(RuntimeError, match=rf"but {name}: .*the number {number}.*--overwrite`"):
        load_partition(parts, 1, 3)


def break_version(parts: Path) -> None:
    edit_json(parts / "partition.json", version=99)


def break_digest(parts: Path) -> None:
    edit_json(parts / "partition.json", book="")


def break_format(parts: Path) -> None:
    edit_json(parts / "rank-00001" / "meta.json", format="else")


def break_array(parts: Path) -> None:
    (parts / "rank-00001" / "x.npy").unlink()


def break_ids(parts: Path) -> None:
    path = parts / "rank-00001" / "halo_ids.npy"
    np.save(path, np.load(path)[::-1].copy())


def remove_all(parts: Path) -> None:
    shutil.rmtree(parts)


def leave_it(parts: Path) -> None:
    assert parts.is_dir()


@pytest.mark.parametrize(
    ("change", "num_ranks"),
    [
        (leave_it, 2),
        (break_version, 3),
        (break_digest, 3),
        (break_format, 3),
        (break_array, 3),
        (break_ids, 3),
        (remove_all, 3),
    ],
)
def test_load_refused_prints_one_command_that_makes_it_right(
    parts: Path, change: Callable[[Path], None], num_ranks: int
) -> None:
    parts = parts.rename(parts.parent / "the parts")
    change(parts)
    with pytest.raises((RuntimeError, ValueError)) as caught:
        load_partition(parts, 1, num_ranks, check_hash=False)
    (command,) = re.findall(r"Run `(.*?)`", str(caught.value))
    python, _, module, *arguments = shlex.split(command)
    assert (python, module) == ("python", "horovod_sylvie")
    arguments[arguments.index("INPUT")] = "synthetic:nodes=60,degree=4,features=2"
    assert main(arguments) == 0
    load_partition(parts, 1, num_ranks)


def test_load_swapped_rank_directories_are_refused(parts: Path) -> None:
    (parts / "rank-00000").rename(parts / "swap")
    (parts / "rank-00001").rename(parts / "rank-00000")
    (parts / "swap").rename(parts / "rank-00001")
    with pytest.raises(RuntimeError, match="it belongs to rank 1, expected rank 0"):
        load_partition(parts, 0, 3)


def test_load_rank_of_another_partitioning_is_refused(parts: Path, tmp_path: Path) -> None:
    partition_graph(build_graph(40, 150, seed=5), tmp_path / "other", 3)
    shutil.rmtree(parts / "rank-00002")
    shutil.copytree(tmp_path / "other" / "rank-00002", parts / "rank-00002")
    with pytest.raises(RuntimeError, match="another partitioning"):
        load_partition(parts, 2, 3)


def test_load_changed_meta_is_refused(parts: Path) -> None:
    path = parts / "rank-00001" / "meta.json"
    counts = json.loads(path.read_text())["counts"]
    edit_json(path, counts={**counts, "send_splits": [0, 0, 0]})
    with pytest.raises(RuntimeError, match=r"meta\.json: it was changed"):
        load_partition(parts, 1, 3)


def test_load_changed_header_is_refused(parts: Path) -> None:
    edit_json(parts / "partition.json", num_parts=2)
    with pytest.raises(RuntimeError, match="its digest does not fit"):
        load_partition(parts, 1, 2)


def test_load_splits_that_do_not_add_up_are_refused_even_if_hashed(parts: Path) -> None:
    path = parts / "rank-00001" / "meta.json"
    counts = json.loads(path.read_text())["counts"]
    meta = edit_json(path, counts={**counts, "recv_splits": [1, 0, 0]})
    header = json.loads((parts / "partition.json").read_text())
    header["ranks"][1] = hash_meta(meta)
    header["digest"] = hash_header(header)
    edit_json(parts / "partition.json", **header)
    edit_json(path, digest=header["digest"])
    with pytest.raises(RuntimeError, match="add up to"):
        load_partition(parts, 1, 3)


def test_header_holds_the_report_for_people(parts: Path) -> None:
    header = read_header(parts, 3)
    assert header["num_parts"] == 3
    assert header["graph"]["num_nodes"] == 40
    assert len(header["report"]["ranks"]) == 3
