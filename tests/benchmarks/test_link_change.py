"""A link that changes in mid-run: the command runs once, and the report says what followed."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import link_change
import pytest
from link_change import followed_at, parse_arguments, phases, plot, running_median, table
from link_change_rank import Log, Schedule, train

import horovod_sylvie as hvs
from examples.dense_data import make_images
from tests.gradient.training import on_ranks

SHORT = Schedule(num_steps=12, change_at=8, width=128, batch_size=20)


def test_rank_zero_changes_the_link_once_in_mid_run(tmp_path: Path) -> None:
    file = tmp_path / "changes"
    command = f"echo changed >> {shlex.quote(str(file))}"

    def body(comm: hvs.LoopbackCommunicator) -> Log:
        return train(make_images(), SHORT, command, comm)

    first, second = on_ranks(2, body)
    assert file.read_text() == "changed\n"
    for log in (first, second):
        assert len(log.steps_s) == len(log.losses) == SHORT.num_steps
        assert all(each > 0 for each in log.steps_s)
    assert first.losses != second.losses  # of its own batches
    assert [each["digest"] for each in first.plans] == [each["digest"] for each in second.plans]
    assert first.plans[0]["from_step"] == 5  # the first decision
    low, high = first.plans[0]["densities"]
    assert 0.001 <= low <= high <= 1.0


def test_command_that_fails_ends_the_job() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        on_ranks(2, lambda comm: train(make_images(), SHORT, "exit 3", comm), timeout_s=3.0)


def make_report(from_steps: tuple[int, ...] = (5, 40, 110)) -> dict[str, Any]:
    return {
        "hosts": 2,
        "rate": "1gbit",
        "to": "100mbit",
        "data": "mnist",
        "schedule": {"num_steps": 120, "change_at": 100},
        "steps_s": [0.1] * 100 + [0.5] * 10 + [0.2] * 10,
        "losses": [2.0] * 100 + [1.0] * 20,
        "plans": [
            {
                "digest": str(number),
                "from_step": step,
                "densities": [0.001 * (number + 1), 0.05],
                "num_groups": 3,
                "predicted_step_s": 0.1,
            }
            for number, step in enumerate(from_steps)
        ],
        "same_plans": True,
    }


def test_table_tells_the_parts_of_a_run_apart() -> None:
    assert table(make_report()).splitlines() == [
        "| link | steps | step, ms | loss | densities |",
        "|---|---|---|---|---|",
        "| 1gbit | 30 to 99 | 100 | 2.000 | 0.002 to 0.05 |",
        "| 100mbit, the old plan | 100 to 109 | 500 | 1.000 | 0.002 to 0.05 |",
        "| 100mbit, new plans | 110 to 119 | 200 | 1.000 | 0.003 to 0.05 |",
        "",
        "The first new plan came 10 steps after it. All ranks had the same plans at the same "
        "steps.",
    ]


def test_table_says_where_no_plan_followed_or_plans_differed() -> None:
    # The decision after the last step before the change knows nothing of it
    report = make_report((5, 100)) | {"same_plans": False}
    assert followed_at(report) is None
    assert [steps for _, steps in phases(report)] == [range(30, 100), range(100, 120)]
    assert "No plan followed the change. All ranks had DIFFERENT plans" in table(report)
    assert "|  |" in table(make_report((115,))).splitlines()[2]  # before the first plan


def test_running_median_follows_and_leaves_out_what_stands_alone() -> None:
    assert running_median([1, 1, 9, 1, 1, 5, 5, 5], 3) == [1, 1, 1, 1, 1, 5, 5, 5]


def test_program_keeps_the_report_and_draws_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    def report_of(launch: list[str], program: Path, options: list[str], **_: Any) -> Any:
        asked.append((launch, program.name, options))
        return {name: make_report()[name] for name in ("steps_s", "losses", "plans", "same_plans")}

    monkeypatch.setattr(link_change, "report_of", report_of)
    words = ["--json", str(tmp_path / "x.json"), "--picture", str(tmp_path / "x.png")]
    words += ["--change", "true", "--launcher", "lab {hosts} {rate}", "--steps", "120"]
    link_change.main([*words, "--change-at", "100", "--data", "mnist:/a/b.npz"])
    assert "10 steps after it" in capsys.readouterr().out
    assert json.loads((tmp_path / "x.json").read_text())["data"] == "mnist"
    assert (tmp_path / "x.png").stat().st_size > 10_000
    launch, program, options = asked[0]
    assert launch == ["lab", "2", "1gbit"]
    assert program == "link_change_rank.py"
    assert options[:4] == ["--data", "mnist:/a/b.npz", "--change", "true"]
    assert json.loads(options[5])["change_at"] == 100


def test_picture_is_drawn_of_a_run_without_plans(tmp_path: Path) -> None:
    plot(make_report(()), tmp_path / "x.png")
    assert (tmp_path / "x.png").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--launcher", "x {rate}", "--change-at", "500"], "--change-at between 0 and --steps"),
        (["--launcher", "x {rate}", "--hosts", "1"], "expected --hosts of at least 2"),
        (["--launcher", sys.executable], "rate 1gbit: expected a --launcher with"),
    ],
)
def test_wrong_arguments_are_named(
    words: list[str], said: str, refusal: Callable[..., str]
) -> None:
    assert said in refusal(parse_arguments, ["--json", "x.json", "--change", "true", *words])
