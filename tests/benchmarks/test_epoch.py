"""The driver of the epoch benchmark partitions once, and runs what is missing."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="needs the extra [examples]")
pytest.importorskip("tqdm", reason="needs the extra [examples]")

import epoch
from epoch import Job, main, parse_arguments, summary_of
from epoch_ways import WAYS

import horovod_sylvie as hvs

GRAPH = "synthetic:nodes=60,degree=4,classes=3,features=5"

# Stands for a launcher and its ranks: notes each call and its partition, and writes the report
LAUNCHER = """\
import json, sys
from pathlib import Path
folder, hosts, _, program, *options = sys.argv[1:]
options = dict(zip(options[::2], options[1::2]))
digest = json.loads(Path(options["--parts"], "partition.json").read_text())["digest"]
with open(Path(folder, "calls"), "a") as calls:
    calls.write(f"{hosts} {options['--model']} {options['--compute']} {digest}\\n")
ways = {way: {"epoch_s": 0.1, "bytes_sent": 1e6, "stale_share": 0.0}
        for way in options["--ways"].split(",")}
Path(options["--report"]).write_text(json.dumps({"ways": ways}))
"""


@pytest.fixture(autouse=True)
def without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    program = tmp_path / "launcher.py"
    program.write_text(LAUNCHER)
    launcher = f"{sys.executable} {program} {tmp_path} {{hosts}}"
    options = ["--json", str(tmp_path / "out.json"), "--launcher", launcher, "--graph", GRAPH]
    return [*options, "--hidden", "8"]


def calls_in(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "calls").read_text().splitlines()]


def test_jobs_that_are_missing_run_on_one_partition_for_each_number_of_hosts(
    tmp_path: Path,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partitioned = []
    original = hvs.partition_graph

    def counted(source: str, directory: Path, num_parts: int) -> Any:
        partitioned.append((source, num_parts))
        return original(source, directory, num_parts)

    monkeypatch.setattr(epoch.hvs, "partition_graph", counted)
    main([*arguments, "--compute", "real"])
    assert [each[:3] for each in calls_in(tmp_path)] == [["2", "sage", "real"]]
    main([*arguments, "--hosts", "2,3", "--models", "sage,gcn", "--compute", "real"])
    calls = calls_in(tmp_path)[1:]
    assert [each[:3] for each in calls] == [
        ["2", "gcn", "real"],
        ["3", "sage", "real"],
        ["3", "gcn", "real"],
    ]
    assert partitioned == [(GRAPH, 2), (GRAPH, 2), (GRAPH, 3)]  # anew in each call of main
    assert calls[1][3] == calls[2][3] != calls[0][3]
    results = json.loads((tmp_path / "out.json").read_text())["jobs"]
    job = results[f"3|unlimited|gcn 3x8|real|{GRAPH}"]
    assert (job["hosts"], job["model"], job["graph"], job["hidden"]) == (3, "gcn", GRAPH, 8)
    assert list(job["ways"]) == list(WAYS)
    assert "Real compute, synthetic:nodes=60" in capsys.readouterr().out


def test_partition_is_removed(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "here"))
    main([*arguments, "--compute", "emulated"])
    assert not list((tmp_path / "here").iterdir())


def test_key_names_everything_that_a_job_is() -> None:
    job = Job(2, "1gbit", "sage", "real", GRAPH, hidden=16, layers=2)
    assert job.key == f"2|1gbit|sage 2x16|real|{GRAPH}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--models mlp", "--models: expected some of sage, gcn, got 'mlp'"),
        ("--compute imagined", "--compute: expected some of emulated, real, got 'imagined'"),
        ("--ways pigeon", "--ways: expected some of no exchange, .* got 'pigeon'"),
        ("--hosts 1", "--hosts: expected numbers from 2, with commas, got '1'"),
        ("--layers 0", "--layers: expected at least 1, got 0"),
        ("--hidden -3", "--hidden: expected at least 1, got -3"),
    ],
)
def test_wrong_argument_is_named(options: str, message: str, refusal: Callable[..., str]) -> None:
    error = refusal(parse_arguments, ["--json", "out.json", *options.split()])
    assert re.search(message, error), error


def test_summary_gives_times_and_ratios_to_full_precision() -> None:
    ways = {"no exchange": {"epoch_s": 0.1}, "full precision": {"epoch_s": 0.2}}
    assert summary_of({"ways": ways}) == "no exchange 100 ms (0.50), full precision 200 ms (1.00)"
    assert summary_of({"ways": {"half precision": {"epoch_s": 0.25}}}) == "half precision 250 ms"
