"""Jobs of a benchmark run where they are missing, and leave nothing behind."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tqdm", reason="needs the extra [examples]")

from launched_jobs import (
    add_arguments,
    add_names,
    check_arguments,
    end,
    measure,
    report_of,
    run_to_end,
)


@dataclass(frozen=True)
class Job:
    key: str


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser, num_rounds=3, turn_s=2.0)
    add_names(parser, "--models", ("mlp", "lstm"), "mlp")
    args = parser.parse_args(["--json", "out.json", *arguments])
    check_arguments(parser, args)
    return args


@pytest.mark.parametrize("program", ["echo $$; exec sleep 50", "trap '' TERM; echo $$; sleep 50"])
def test_command_that_takes_too_long_is_stopped(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launched_jobs._END_S", 0.5)
    output = tmp_path / "output"
    begun_s = time.monotonic()
    with output.open("w") as stream:
        assert run_to_end(["sh", "-c", program], stream, timeout_s=0.5) is None
    assert time.monotonic() - begun_s < 20
    with pytest.raises(ProcessLookupError):
        os.kill(int(output.read_text()), 0)


def test_command_returns_its_status(tmp_path: Path) -> None:
    with (tmp_path / "output").open("w") as stream:
        assert run_to_end([sys.executable, "-c", "raise SystemExit(7)"], stream, 30.0) == 7


def test_report_is_what_the_program_writes(tmp_path: Path) -> None:
    program = tmp_path / "rank.py"
    program.write_text(
        "import json, sys\n"
        "_, option, report, *others = sys.argv\n"
        "assert option == '--report'\n"
        "open(report, 'w').write(json.dumps(others))\n"
    )
    report = report_of(["env"], program, ["--model", "mlp"], key="a", timeout_s=30.0)
    assert report == ["--model", "mlp"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print('why'); raise SystemExit(3)", "a: the launcher ended with 3\nwhy"),
        ("print('no report')", "a: the launcher ended with 0\nno report"),
        (
            "print('slow', flush=True); import time; time.sleep(50)",
            "a: the launcher was stopped: it took too long\nslow",
        ),
    ],
)
def test_program_that_fails_is_told_with_the_end_of_its_output(
    text: str, message: str, tmp_path: Path
) -> None:
    program = tmp_path / "rank.py"
    program.write_text(text)
    with pytest.raises(RuntimeError) as caught:
        report_of(["env"], program, [], key="a", timeout_s=1.0)
    assert str(caught.value) == message


def test_jobs_in_the_file_are_not_run_again(tmp_path: Path) -> None:
    file, calls = tmp_path / "sub" / "out.json", []

    def run(job: Job) -> dict[str, Any]:
        calls.append(job.key)
        return {"call": len(calls)}

    def measured(keys: str, *, again: bool = False) -> tuple[Any, list[str]]:
        return measure(map(Job, keys), run, file, again=again, summary_of=str)

    assert measured("a") == ({"a": {"call": 1}}, [])
    assert measured("ab") == ({"a": {"call": 1}, "b": {"call": 2}}, [])
    assert json.loads(file.read_text()) == {"jobs": {"a": {"call": 1}, "b": {"call": 2}}}
    assert measured("a", again=True)[0]["a"] == {"call": 3}
    assert calls == ["a", "b", "a"]
    assert [each.name for each in file.parent.iterdir()] == ["out.json"]


def test_failed_job_is_named_and_the_others_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(job: Job) -> dict[str, Any]:
        if job.key == "b":
            raise RuntimeError("the ranks fell over")
        return {}

    file = tmp_path / "out.json"
    results, failures = measure(
        map(Job, "abc"), run, file, again=False, summary_of=lambda _: "fine"
    )
    assert (list(results), failures) == (["a", "c"], ["b"])
    assert json.loads(file.read_text())["jobs"].keys() == {"a", "c"}
    output = capsys.readouterr().out
    assert "the ranks fell over" in output and "c: fine" in output
    with pytest.raises(SystemExit, match="failed: b. The same command runs them again."):
        end(failures)
    end([])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--models mlp,cnn", "--models: expected some of mlp, lstm, got 'cnn'"),
        ("--hosts 1", "--hosts: expected numbers from 2, with commas, got '1'"),
        ("--hosts 2,many", "--hosts: expected numbers from 2, with commas, got '2,many'"),
        ("--rates 1gbit --launcher lab", "rate 1gbit: expected a --launcher with"),
    ],
)
def test_wrong_argument_is_named(options: str, message: str, refusal: Callable[..., str]) -> None:
    error = refusal(lambda words: parsed(*words), options.split())
    assert re.search(message, error), error


def test_arguments_in_their_range_are_taken() -> None:
    args = parsed("--hosts", "2,4", "--rates", "1gbit", "--launcher", "lab {rate_option}")
    assert (args.hosts, args.rates, args.rounds, args.turn_s) == ("2,4", "1gbit", 3, 2.0)
    assert parsed().rates == "unlimited"
