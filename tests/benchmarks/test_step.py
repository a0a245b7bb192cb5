"""The driver of the step benchmark runs what is missing, and leaves nothing behind."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="needs the extra [examples]")
pytest.importorskip("tqdm", reason="needs the extra [examples]")

from step import main, parse_arguments, summary_of

# Stands for a launcher and its ranks: notes each call, and writes the report
LAUNCHER = """\
import json, sys
from pathlib import Path
folder, *command = sys.argv[1:]
options = dict(zip(command[2::2], command[3::2]))
with open(Path(folder, "calls"), "a") as calls:
    calls.write(f"{options['--model']} {options['--compute']}\\n")
if Path(folder, "broken").exists():
    sys.exit("the ranks fell over")
ways = {way: {"step_s": 0.1, "bytes_sent": 1e6} for way in options["--ways"].split(",")}
Path(options["--report"]).write_text(json.dumps({"num_parameters": 1, "ways": ways}))
"""


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    program = tmp_path / "launcher.py"
    program.write_text(LAUNCHER)
    launcher = f"{sys.executable} {program} {tmp_path}"
    return ["--json", str(tmp_path / "sub" / "out.json"), "--launcher", launcher]


def calls_in(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def results_in(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "sub" / "out.json").read_text())["jobs"]


def test_jobs_in_the_file_are_not_run_again(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main([*arguments, "--models", "mlp", "--compute", "real"])
    assert calls_in(tmp_path) == ["mlp real"]
    main([*arguments, "--models", "mlp,lstm", "--compute", "emulated,real"])
    assert calls_in(tmp_path)[1:] == ["mlp emulated", "lstm emulated", "lstm real"]
    results = results_in(tmp_path)
    assert len(results) == 4
    job = results["2|unlimited|lstm|real"]
    assert (job["hosts"], job["rate"], job["model"], job["compute"]) == (
        2,
        "unlimited",
        "lstm",
        "real",
    )
    assert "Real compute, 2 hosts" in capsys.readouterr().out


def test_again_runs_jobs_that_are_in_the_file(tmp_path: Path, arguments: list[str]) -> None:
    options = ["--models", "mlp", "--compute", "real", "--ways", "no exchange"]
    main([*arguments, *options])
    main([*arguments, *options, "--again"])
    assert calls_in(tmp_path) == ["mlp real", "mlp real"]
    assert list(results_in(tmp_path)["2|unlimited|mlp|real"]["ways"]) == ["no exchange"]


def test_failed_job_is_named_with_its_output_and_run_again(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--models", "mlp", "--compute", "real"]
    (tmp_path / "broken").touch()
    with pytest.raises(SystemExit, match=r"failed: 2\|unlimited\|mlp\|real. The same command"):
        main([*arguments, *options])
    assert "launcher ended with 1\nthe ranks fell over" in capsys.readouterr().out
    (tmp_path / "broken").unlink()
    main([*arguments, *options])
    assert len(results_in(tmp_path)) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--models mlp,cnn", "--models: expected some of mlp, resnet20, lstm, got 'cnn'"),
        ("--compute imagined", "--compute: expected some of emulated, real, got 'imagined'"),
        ("--ways pigeon", "--ways: expected some of no exchange, .* got 'pigeon'"),
        ("--hosts 1", "--hosts: expected numbers from 2, with commas, got '1'"),
        ("--hosts 2,many", "--hosts: expected numbers from 2, with commas, got '2,many'"),
        ("--rates 1gbit --launcher lab", "rate 1gbit: expected a --launcher with"),
    ],
)
def test_wrong_argument_is_named(options: str, message: str, refusal: Callable[..., str]) -> None:
    error = refusal(parse_arguments, ["--json", "out.json", *options.split()])
    assert re.search(message, error), error


def test_summary_gives_times_and_ratios() -> None:
    ways = {"no exchange": {"step_s": 0.2}, "top-k 1 %": {"step_s": 0.25}}
    assert summary_of({"ways": ways}) == "no exchange 200 ms (1.00), top-k 1 % 250 ms (1.25)"
    assert summary_of({"ways": {"top-k 1 %": {"step_s": 0.25}}}) == "top-k 1 % 250 ms"
