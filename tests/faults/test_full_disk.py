"""A disk that is full during a save: the error names the file, and the old state is whole."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from json_file import finite, write_json

import horovod_sylvie as hvs
from horovod_sylvie.__main__ import main
from horovod_sylvie.run_report.files import write_files
from tests.faults import saved_training as training
from tests.faults.full_disk import full_disk

GRAPH = "synthetic:nodes=300,degree=4,features=5,seed={seed}"


def partition(directory: Path, *, seed: int) -> None:
    hvs.partition_graph(
        GRAPH.format(seed=seed), directory, 2, method="random", seed=seed, overwrite=True
    )


def files_in(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_partition_keeps_the_old_whichever_file_does_not_fit(tmp_path: Path) -> None:
    partition(tmp_path / "new", seed=2)
    sizes = {name: len(raw) for name, raw in files_in(tmp_path / "new").items()}
    partition(tmp_path / "p" / "parts", seed=1)
    before = files_in(tmp_path / "p")
    for num_bytes in sorted(set(sizes.values())):
        with full_disk(num_bytes - 1), pytest.raises(OSError, match="too large") as caught:
            partition(tmp_path / "p" / "parts", seed=2)
        assert caught.value.errno == errno.EFBIG
        named = Path(caught.value.filename)
        assert str(named) in str(caught.value)
        name = named.relative_to(tmp_path / "p").as_posix().partition("/")[2]
        assert sizes[name] >= num_bytes - 40, name  # the report has times, of several lengths
        assert files_in(tmp_path / "p") == before
        assert names_in(tmp_path / "p") == ["parts"]
    partition(tmp_path / "p" / "parts", seed=2)
    hvs.load_partition(tmp_path / "p" / "parts", 1, 2)


def test_partition_command_says_which_file_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["partition", GRAPH.format(seed=1), str(tmp_path / "p"), "--parts", "2"]
    with full_disk(300):
        assert main([*command, "--method", "random"]) == 2
    said = capsys.readouterr().err
    assert "File too large: '" in said
    assert ".npy'" in said
    assert names_in(tmp_path) == []


def test_checkpoint_keeps_the_one_before(tmp_path: Path) -> None:
    before = training.save(tmp_path, epochs=3)
    kept = files_in(tmp_path)
    refused = r"cannot write .*rank-[01]\.pt: File too large"
    limit = full_disk(len(kept["epoch-000003/rank-0.pt"]) // 2)
    with limit, pytest.raises((OSError, hvs.PeerError), match=refused):
        training.save(tmp_path, epochs=4)
    assert {key: raw for key, raw in files_in(tmp_path).items() if ".partial" not in key} == kept
    for had, has in zip(before, training.load(tmp_path), strict=True):
        assert training.are_equal(had, has)
    training.save(tmp_path, epochs=4)
    assert names_in(tmp_path) == ["epoch-000004"]


def test_report_keeps_the_old_and_leaves_nothing_beside(tmp_path: Path) -> None:
    write_files(tmp_path, {"report.html": "old", "report.json": "{}"})
    with full_disk(1000), pytest.raises(OSError, match=r"cannot write .*report\.json: File too"):
        write_files(tmp_path, {"report.html": "new", "report.json": "x" * 2000})
    assert files_in(tmp_path) == {"report.html": b"old", "report.json": b"{}"}


def test_figures_of_an_example_keep_the_old(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    write_json(file, {"loss": [finite(1.0), finite(float("nan"))]})
    assert json.loads(file.read_text()) == {"loss": [1.0, None]}
    before = files_in(tmp_path)
    refused = r"--json: cannot write .*figures\.json: File too large"
    with full_disk(1000), pytest.raises(OSError, match=refused) as caught:
        write_json(file, {"loss": [0.5] * 1000})
    assert caught.value.errno == errno.EFBIG
    assert files_in(tmp_path) == before
