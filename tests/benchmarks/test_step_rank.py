"""A rank of the step benchmark takes turns with all ways, in step with the other ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import step_rank
import torch
from emulated import ComputeTimes, LayerTime
from step_ddp import DDP_WAYS
from step_rank import (
    Contender,
    Pace,
    agreed,
    figures_of,
    run_job,
    shared_times,
    take_turn,
    warm_up,
)
from step_ways import LAGS, NO_EXCHANGE, STOCK_HOROVOD, WAYS
from torch import Tensor, nn

import horovod_sylvie as hvs
from horovod_sylvie.gradient.adaptive_plan import PlanReport
from horovod_sylvie.planning.plan import Plan
from tests.gradient.training import on_ranks

OWN_WAYS = [way for way in WAYS if way not in (STOCK_HOROVOD, *DDP_WAYS)]
SHORT = Pace(num_rounds=3, turn_s=0.0, warmup_s=0.0, planning_s=0.0)


@pytest.fixture
def small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_loss(name: str, model: nn.Module, seed: int) -> Any:
        x = torch.randn(4, 200, generator=torch.Generator().manual_seed(seed))
        return lambda: model(x).square().mean()

    monkeypatch.setattr(step_rank, "make_model", lambda name: nn.Linear(200, 100))
    monkeypatch.setattr(step_rank, "make_loss", make_loss)


class CountingOptimizer:
    def __init__(self) -> None:
        self.num_steps = 0

    def zero_grad(self) -> None:
        pass

    def step(self) -> None:
        self.num_steps += 1

    def telemetry(self) -> Any:
        return SimpleNamespace(groups=(), plan=None)


def make_contender(way: str = "top-k 1 %", step_s: float = 0.0) -> Contender:
    weight = torch.zeros(1, requires_grad=True)
    return Contender(way, nn.Linear(1, 1), lambda: weight.sum(), CountingOptimizer(), step_s=step_s)


@pytest.mark.parametrize("compute", ["real", "emulated"])
@pytest.mark.usefixtures("small_models")
def test_job_measures_every_way_in_every_round(compute: str) -> None:
    for report in on_ranks(2, lambda comm: run_job("small", compute, OWN_WAYS, comm, SHORT)):
        assert report["num_parameters"] == 20_100
        assert list(report["ways"]) == OWN_WAYS
        for way, figures in report["ways"].items():
            low, high = figures["quartiles_s"]
            assert 0 < low <= figures["step_s"] <= high
            assert figures["num_steps"] == SHORT.num_rounds
            assert (figures["bytes_sent"] == 0) == (way == NO_EXCHANGE)
        assert ("emulated_s" in report) == (compute == "emulated")


@pytest.mark.usefixtures("small_models")
def test_ranks_emulate_the_times_that_rank_zero_measured() -> None:
    def body(comm: hvs.LoopbackCommunicator) -> ComputeTimes:
        own = ComputeTimes(float(comm.rank), (LayerTime(("weight", "bias"), 0.5),))
        return shared_times(comm, lambda: own)

    for times in on_ranks(3, body):
        assert times == ComputeTimes(0.0, (LayerTime(("weight", "bias"), 0.5),))


def test_agreed_value_is_that_of_rank_zero() -> None:
    assert on_ranks(3, lambda comm: agreed(comm, 0.1 + comm.rank)) == [0.1, 0.1, 0.1]


@pytest.mark.parametrize(("way", "num_steps"), [("top-k 1 %", 4), (LAGS, 20)])
def test_warm_up_with_time_left_is_longer_where_a_plan_is_made(way: str, num_steps: int) -> None:
    def body(comm: hvs.LoopbackCommunicator) -> Contender:
        contender = make_contender(way)
        warm_up(comm, contender, Pace(warmup_s=60, planning_s=60))
        return contender

    for contender in on_ranks(2, body):
        assert contender.optimizer.num_steps == num_steps
        assert contender.step_s > 0 and contender.steps_s == []


def test_warm_up_without_time_ends_after_two_steps() -> None:
    def body(comm: hvs.LoopbackCommunicator) -> int:
        contender = make_contender(LAGS)
        warm_up(comm, contender, SHORT)
        return int(contender.optimizer.num_steps)

    assert on_ranks(2, body) == [2, 2]


@pytest.mark.parametrize(
    ("step_s", "num_steps"), [(5.0, 1), (0.75, 2), (0.25, 4), (1e-6, 40), (0.0, 40)]
)
def test_turn_has_as_many_steps_as_its_time_allows(step_s: float, num_steps: int) -> None:
    def body(comm: hvs.LoopbackCommunicator) -> Contender:
        contender = make_contender(step_s=step_s)
        take_turn(comm, contender, Pace(turn_s=1.0))
        return contender

    for contender in on_ranks(2, body):
        assert contender.optimizer.num_steps == num_steps
        assert len(contender.steps_s) == num_steps
        assert 0 < contender.step_s < step_s or step_s < 1e-3


def test_turn_leaves_every_rank_with_the_same_estimate() -> None:
    def body(comm: hvs.LoopbackCommunicator) -> float:
        contender = make_contender(step_s=0.25)
        take_turn(comm, contender, Pace(turn_s=1.0))
        return contender.step_s

    assert len(set(on_ranks(3, body))) == 1


def test_bytes_are_kept_while_a_new_plan_has_counted_none() -> None:
    def body(comm: hvs.LoopbackCommunicator) -> list[float]:
        contender = make_contender()
        kept = []
        for num_bytes in (300.0, 0.0, 200.0):
            group = SimpleNamespace(bytes_sent=num_bytes)
            contender.optimizer.telemetry = lambda group=group: SimpleNamespace(groups=[group])
            take_turn(comm, contender, SHORT)
            kept.append(contender.bytes_sent)
        return kept

    assert on_ranks(2, body) == 2 * [[300.0, 300.0, 200.0]]


def test_figures_are_median_and_quartiles_of_all_steps() -> None:
    contender = make_contender(NO_EXCHANGE)
    contender.steps_s = [5.0, 1.0, 2.0, 4.0, 3.0]
    figures = figures_of(contender)
    assert figures == {
        "step_s": 3.0,
        "quartiles_s": [2.0, 4.0],
        "num_steps": 5,
        "bytes_sent": 0.0,
    }
    contender.steps_s = [7.0]
    assert figures_of(contender)["quartiles_s"] == [7.0, 7.0]


def test_figures_hold_a_prediction_where_there_is_one() -> None:
    def telemetry() -> Any:
        return SimpleNamespace(groups=(), plan=PlanReport(Plan(()), predicted_step_s=0.5))

    contender = make_contender(LAGS)
    contender.steps_s = [1.0]
    contender.optimizer.telemetry = telemetry
    assert figures_of(contender)["predicted_step_s"] == 0.5


def test_run_returns_when_each_step_ended() -> None:
    losses: list[Tensor] = []
    contender = make_contender()
    loss_of = contender.loss_of

    def counted() -> Tensor:
        losses.append(loss_of())
        return losses[-1]

    contender.loss_of = counted
    ends_s = contender.run(5)
    assert len(ends_s) == len(losses) == contender.optimizer.num_steps == 5
    assert ends_s == sorted(ends_s)
