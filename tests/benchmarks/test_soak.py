"""The verdict on a soak: what grows, what is slow, and what is neither."""

from __future__ import annotations

import json
import random
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tqdm", reason="needs the extra [examples]")

from soak import growth_of, main, positive, verdict_of

MIB = 2**20
LIMITS = {"deadline_s": 60.0, "max_growth_mib": 8.0}


def epochs_of(memory_mib: list[list[float]], *, longest_s: float = 0.5) -> list[dict[str, Any]]:
    """Return a minute for each epoch; `memory_mib` is by epoch, then by rank."""
    return [
        {
            "s": 60.0 * number,
            "steps": 50,
            "memory_bytes": [int(MIB * each) for each in memory],
            "longest_step_s": [0.1, longest_s],
        }
        for number, memory in enumerate(memory_mib, 1)
    ]


def test_growth_is_of_the_line_through_the_second_half() -> None:
    seconds = [10.0 * number for number in range(20)]
    rising = [3000 * number for number in range(20)]
    assert growth_of(seconds, rising) == pytest.approx(27_000)
    assert growth_of(seconds, [100 * each for each in rising[:10]] + 10 * [7]) == 0
    noise = random.Random(0)
    noisy = [1e9 + 3000 * number + noise.uniform(-300, 300) for number in range(20)]
    assert growth_of(seconds, [int(each) for each in noisy]) == pytest.approx(27_000, rel=0.1)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_growth_over_too_few_epochs_is_none(number: int) -> None:
    assert growth_of([1.0, 2.0][:number], [5, 9][:number]) == 0


def test_flat_run_passes() -> None:
    memory = [[400.0 + min(10, epoch), 410.0] for epoch in range(40)]  # warm-up ends
    summary, problems = verdict_of(epochs_of(memory), **LIMITS)
    assert problems == []
    assert summary.startswith("40 epochs, 2000 steps in 2400 s; parameters equal on 2 ranks")
    assert "+0.00, +0.00 MiB (at most 8); longest step 0.50 s (at most 60)" in summary


def test_rank_that_leaks_is_named() -> None:
    memory = [[400.0, 400.0 + epoch] for epoch in range(40)]
    _, problems = verdict_of(epochs_of(memory), **LIMITS)
    assert problems == ["the memory of rank 1 grew by 19.00 MiB"]


def test_step_beyond_the_deadline_fails() -> None:
    _, problems = verdict_of(epochs_of([[1.0, 1.0]], longest_s=61.0), **LIMITS)
    assert problems == ["a step took 61.00 s"]


def test_no_epoch_fails() -> None:
    assert verdict_of([], **LIMITS)[1] == ["no epoch was trained"]


# In place of ranks: writes the report that it is told, and ends with a status
RANKS = """
import pathlib, sys
status, text, *command = sys.argv[1:]
if text:
    pathlib.Path(command[command.index("--report") + 1]).write_text(text)
sys.exit(int(status))
"""


@pytest.mark.parametrize(
    ("status", "memory_mib", "expected", "said"),
    [
        (0, [[1.0]] * 4, 0, "soak: passed"),
        (0, [[1.0], [2.0], [30.0], [40.0]], 1, "soak: failed: the memory of rank 0 grew by 10.00"),
        (3, [[1.0]] * 4, 1, "soak: failed: the job ended with 3"),
        (0, None, 1, "soak: failed: the job ended with 0"),
    ],
)
def test_status_and_last_line_are_those_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    status: int,
    memory_mib: list[list[float]] | None,
    expected: int,
    said: str,
) -> None:
    (tmp_path / "ranks.py").write_text(RANKS)
    report = "" if memory_mib is None else json.dumps(epochs_of(memory_mib))
    launcher = [sys.executable, str(tmp_path / "ranks.py"), str(status), report]
    monkeypatch.setattr("soak.launch_command", lambda *_, **__: launcher)
    monkeypatch.setattr("sys.argv", ["soak.py", "--minutes", "0.01"])
    assert main() == expected
    assert capsys.readouterr().out.splitlines()[-1].startswith(said)


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan"])
def test_numbers_that_are_not_positive_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="expected a positive number"):
        positive(text)
