"""The `partition` command: prints the report, or one clear line and status 2."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from horovod_sylvie.__main__ import main
from horovod_sylvie.partition.loader import load_partition

from .conftest import RunBlocked

SOURCE = "synthetic:nodes=200,degree=4,features=3"


def run_command(*arguments: str | Path) -> int:
    return main(["partition", *map(str, arguments)])


def test_command_writes_the_pieces_and_prints_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(SOURCE, tmp_path / "p", "--parts", "3") == 0
    out, err = capsys.readouterr()
    for word in ("halo/inner", "rows sent", "balance", "at one bit", "peak memory", "kept"):
        assert word in out
    assert err == ""
    assert load_partition(tmp_path / "p", 2, 3).num_parts == 3


def test_command_json_prints_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--json", "--method", "random", "--seed", "5"]
    assert run_command(SOURCE, tmp_path / "p", "--parts", "2", *options) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["method"] == report["objective"] == "random"
    assert report["num_parts"] == len(report["ranks"]) == 2
    assert report["digest"] == load_partition(tmp_path / "p", 0, 2).digest


def test_command_overwrite_is_needed_to_replace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(SOURCE, tmp_path / "p", "--parts", "2") == 0
    assert run_command(SOURCE, tmp_path / "p", "--parts", "3") == 2
    assert "Use --overwrite" in capsys.readouterr().err
    assert run_command(SOURCE, tmp_path / "p", "--parts", "3", "--overwrite") == 0
    load_partition(tmp_path / "p", 0, 3)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["gone.npz", "{}", "--parts", "2"], "which does not exist"),
        (["synthetic:colour=1", "{}", "--parts", "2"], "Keys and defaults"),
        (["Nonesuch", "{}", "--parts", "2"], "no such class in torch_geometric.datasets"),
        (["Cora", "{}", "--parts", "2"], "expected 'root' (--root)"),
        ([SOURCE, "{}", "--parts", "0"], "for 'num_parts', got 0"),
        (["gone.npz", "{}", "--parts", "2", "--method", "spectral"], "metis, random, contiguous"),
        ([SOURCE, "{}", "--parts", "2", "--seed", "-1"], "for 'seed', got -1"),
        ([SOURCE, "{}", "--parts", "2", "--root", "x"], "expected no 'root'"),
        ([SOURCE, "{}", "--parts", "2", "--target", "y"], "expected no 'target'"),
    ],
)
def test_command_wrong_input_is_one_line_and_status_two(
    arguments: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [argument.format(tmp_path / "p") for argument in arguments]
    assert run_command(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert text in err
    assert not list(tmp_path.iterdir())


def test_command_without_scipy_says_the_pip_command(run_blocked: RunBlocked) -> None:
    program = (
        "import sys\n"
        "from horovod_sylvie.__main__ import main\n"
        f"sys.exit(main(['partition', {SOURCE!r}, 'p', '--parts', '2']))\n"
    )
    done = run_blocked(program, "scipy")
    assert done.returncode == 2
    assert "No module named 'scipy" in done.stderr
    assert "pip install 'horovod_sylvie[gnn]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_command_help_lists_the_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_command("--help")
    out = capsys.readouterr().out
    assert "graph.npz" in out
    assert "mixing=0.2" in out


SLOW_PROGRAM = """
import sys, threading
from horovod_sylvie.__main__ import main
from horovod_sylvie.partition.writer import PartitionWriter

def wait_for_the_signal(self, owners):
    print("writing", flush=True)
    while True:  # in short waits: one that the signal just precedes would never end
        threading.Event().wait(0.1)
PartitionWriter.write_book = wait_for_the_signal
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_command_interrupted_or_terminated_cleans_up(tmp_path: Path, number: int) -> None:
    arguments = ["partition", SOURCE, str(tmp_path / "p"), "--parts", "2"]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_PROGRAM, *arguments],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(number)
        assert process.wait(timeout=50) == 128 + number
    finally:
        process.kill()
        process.communicate()
    assert not list(tmp_path.iterdir())
