"""Time to a loss: every way is trained until it is there, and only its steps count."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import time_to_loss
import time_to_loss_rank
import torch
from step_ddp import DDP_WAYS
from step_ways import LAGS, STOCK_HOROVOD
from time_to_loss import Job, jobs_of, parse_arguments, plot, table
from time_to_loss_rank import (
    TRAINING_WAYS,
    Trainee,
    Training,
    figures_of,
    make_trainee,
    run_job,
)

import horovod_sylvie as hvs
from examples.dense_data import Dataset, make_images
from tests.gradient.training import on_ranks

OWN_WAYS = [way for way in TRAINING_WAYS if way not in (STOCK_HOROVOD, *DDP_WAYS)]
TRAINING = Training(width=64, batch_size=50, lr=0.05, loss=0.9, max_steps=60, turn_steps=5)


def test_every_way_trains_until_it_has_reached_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = threading.Lock()

    def make_alone(*args: Any) -> Trainee:
        with lock:  # ranks are threads here, and share the global generator
            return make_trainee(*args)

    monkeypatch.setattr(time_to_loss_rank, "make_trainee", make_alone)
    data = make_images()
    first, second = on_ranks(2, lambda comm: run_job(OWN_WAYS, data, TRAINING, comm))
    assert list(first["ways"]) == OWN_WAYS
    for way, figures in first["ways"].items():
        losses, seconds = figures["losses"], figures["seconds"]
        assert losses == second["ways"][way]["losses"]
        assert losses[0] > TRAINING.loss >= losses[-1]
        assert all(loss > TRAINING.loss for loss in losses[:-1])
        assert figures["num_steps"] == 5 * (len(losses) - 1)
        assert seconds[0] == 0.0
        assert seconds == sorted(seconds)
        assert figures["time_s"] == pytest.approx(seconds[-1], abs=1e-3)
    starts = {figures["losses"][0] for figures in first["ways"].values()}
    assert len(starts) == 1  # the same weights


def test_way_that_does_not_reach_the_loss_ends_at_the_most_steps() -> None:
    training = Training(width=8, loss=1e-6, max_steps=4, turn_steps=2)
    report, _ = on_ranks(2, lambda comm: run_job([LAGS], make_images(), training, comm))
    figures = report["ways"][LAGS]
    assert len(figures["losses"]) == 3
    assert figures["time_s"] is None
    assert figures["num_steps"] is None


def test_looks_at_the_loss_are_off_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time_to_loss_rank.time, "perf_counter", lambda: now[0])

    def take(duration_s: float) -> Any:
        def pass_time(*_: Any) -> float:
            now[0] += duration_s
            return 1.0

        return pass_time

    monkeypatch.setattr(time_to_loss_rank, "test_loss", take(100.0))
    monkeypatch.setattr(time_to_loss_rank, "await_all", lambda _: None)
    monkeypatch.setattr(Trainee, "train", lambda _, num_steps: take(0.5 * num_steps)())
    training = Training(loss=0.1, max_steps=6, turn_steps=2)
    report = on_ranks(1, lambda comm: run_job(["dense float32"], make_images(), training, comm))[0]
    assert report["ways"]["dense float32"]["seconds"] == [0.0, 1.0, 2.0, 3.0]


def test_loss_is_that_of_all_examples() -> None:
    data = make_images()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    with torch.no_grad():
        expected = float(torch.nn.functional.cross_entropy(model(data.x_test), data.y_test))

    def body(comm: hvs.LoopbackCommunicator) -> float:
        return time_to_loss_rank.test_loss(model, data, comm)

    assert on_ranks(3, body) == pytest.approx([expected] * 3)


def test_batches_go_on_from_epoch_to_epoch() -> None:
    ten = torch.arange(10.0).view(10, 1, 1, 1)
    data = Dataset(ten, torch.zeros(10, dtype=torch.int64), ten, torch.zeros(10).long(), 1)

    def body(comm: hvs.LoopbackCommunicator) -> list[float]:
        batches = time_to_loss_rank.endless(data, 2, comm)
        return [float(each) for _ in range(4) for each in next(batches)[0].flatten()]

    ranks = on_ranks(2, body)
    for epoch in (slice(0, 4), slice(4, 8)):
        seen = [value for values in ranks for value in values[epoch]]
        assert len(set(seen)) == 8


def make_figures(time_s: float | None) -> dict[str, Any]:
    trainee = Trainee("LAGS", torch.nn.Identity(), torch.nn.Identity(), None, iter(()))
    trainee.seconds, trainee.losses = [0.0, 2.0, 4.125], [2.3, 1.0, 0.3]
    loss = 0.2 if time_s is None else 0.5
    return figures_of(trainee, Training(loss=loss))


def make_results() -> dict[str, dict[str, Any]]:
    return {
        f"4|{rate}": {
            "hosts": 4,
            "rate": rate,
            "data": "mnist",
            "training": {"loss": 0.2},
            "ways": {STOCK_HOROVOD: make_figures(None), LAGS: make_figures(4.125)},
        }
        for rate in ("1gbit", "100mbit")
    }


def test_table_gives_seconds_and_steps_or_says_that_the_loss_was_not_reached() -> None:
    assert table(make_results()).splitlines() == [
        "| hosts | rate | data | loss | Horovod dense | LAGS |",
        "|---|---|---|---|---|---|",
        "| 4 | 100mbit | mnist | 0.2 | not in 4 s | 4.12 s (20) |",
        "| 4 | 1gbit | mnist | 0.2 | not in 4 s | 4.12 s (20) |",
    ]


def test_picture_is_drawn(tmp_path: Path) -> None:
    plot(make_results(), tmp_path / "new" / "losses.png")
    assert (tmp_path / "new" / "losses.png").stat().st_size > 10_000


def test_jobs_are_those_of_the_command_line() -> None:
    words = "--json x.json --loss 0.5 --hosts 2,4 --rates 100mbit,unlimited --max-steps 7"
    args = parse_arguments([*words.split(), "--data", "mnist:/a/b.npz", "--launcher", "x {rate}"])
    training = Training(loss=0.5, max_steps=7)
    assert list(jobs_of(args)) == [
        Job(hosts, rate, "mnist", training) for hosts in (2, 4) for rate in ("100mbit", "unlimited")
    ]
    assert next(jobs_of(args)).key == "2|100mbit|mnist|0.5"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--loss", "0"], "expected --loss above 0"),
        (["--loss", "1", "--max-steps", "0"], "--max-steps of at least 1"),
        (["--loss", "1", "--ways", "by mail"], "--ways: expected some of Horovod dense"),
        (["--loss", "1", "--rates", "1gbit", "--launcher", "lab"], "expected a --launcher with"),
    ],
)
def test_wrong_arguments_are_named(
    words: list[str], said: str, refusal: Callable[..., str]
) -> None:
    assert said in refusal(parse_arguments, ["--json", "x.json", *words])


def test_program_runs_a_job_and_keeps_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = {"num_parameters": 3, "ways": {LAGS: make_figures(4.125)}}
    monkeypatch.setattr(time_to_loss, "report_of", lambda *_, **__: figures)
    words = ["--json", str(tmp_path / "x.json"), "--loss", "0.5"]
    time_to_loss.main([*words, "--picture", str(tmp_path / "x.png")])
    assert "| 2 | unlimited | synthetic | 0.5 | 4.12 s (20) |" in capsys.readouterr().out
    assert (tmp_path / "x.png").exists()
    monkeypatch.setattr(time_to_loss, "report_of", None)  # nothing is run again
    time_to_loss.main(words)
