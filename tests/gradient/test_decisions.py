"""When the next plan is decided on."""

from __future__ import annotations

import pytest

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.gradient.adaptive_plan import AdaptivePlan, PlanReport
from tests.gradient.training import on_ranks


@pytest.mark.parametrize(
    ("done", "took_s", "next_one"),
    [
        (5, 9.0, 15),  # early ones come as they should
        (15, 0.0, 50),
        (15, 0.06, 50),
        (50, 0.0, 100),
        (50, 0.1, 100),  # 2 % of 50 steps
        (50, 0.11, 150),
        (100, 9.0, 200),
        (110, 9.0, 250),  # never more than three times as late
    ],
)
def test_decisions_that_take_long_are_put_off(done: int, took_s: float, next_one: int) -> None:
    plan = AdaptivePlan(hvs.Compression.lags(), starts_late=False)
    plan._num_steps, plan._took_s = done, took_s
    assert plan._next_decision(0.1) == next_one


def test_decisions_are_regular_where_no_step_was_measured() -> None:
    plan = AdaptivePlan(hvs.Compression.lags(replan_every=7), starts_late=False)
    plan._num_steps, plan._took_s = 21, 9.0
    assert plan._next_decision(0.0) == 28


def test_rank_that_is_not_new_forgets_what_it_has_predicted() -> None:
    """Else it alone would find its steps too long, and calibrate a link that others do not."""

    def body(comm: LoopbackCommunicator) -> PlanReport:
        plan = AdaptivePlan(hvs.Compression.lags(), starts_late=False)
        if comm.rank == 0:
            plan.report = PlanReport(num_changes=2, predicted_step_s=1e-9)
        plan.begin(comm, [])
        return plan.report

    first, second = on_ranks(2, body)
    assert first == PlanReport(num_changes=2)
    assert second == PlanReport()
