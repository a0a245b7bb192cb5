"""When the next plan is decided on."""

from __future__ import annotations

import pytest

import horovod_sylvie as hvs
from horovod_sylvie.gradient.adaptive_plan import AdaptivePlan


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
