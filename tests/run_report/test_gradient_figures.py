"""Figures of an epoch are differences of reports, and begin anew with a plan."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from horovod_sylvie.gradient.adaptive_plan import PlanReport
from horovod_sylvie.gradient.telemetry import GroupCost, LayerSample, Telemetry
from horovod_sylvie.run_report.gradient_figures import GradientReader, dense_bytes


class Optimizer:
    """Reports what it is told to."""

    def __init__(self) -> None:
        self.report = Telemetry(0, (), {})

    def telemetry(self) -> Telemetry:
        return self.report

    def tell(self, num_steps: int, *totals: float, plan: PlanReport | None = None) -> None:
        """Report totals of bytes and times by group; times are a tenth of the bytes."""
        self.report = Telemetry(
            num_steps,
            tuple(
                cost(f"group {number}", total / max(1, num_steps))
                for number, total in enumerate(totals)
            ),
            {"a": LayerSample(0, 0.1, 1.0, 0.5, 0.75)},
            plan,
        )


def cost(name: str, per_step: float) -> GroupCost:
    seconds = (per_step / 10, per_step / 20, per_step / 40)
    return GroupCost(name, "TopK", 1000, 10, per_step, per_step, *seconds)


def test_first_figures_are_those_since_the_start() -> None:
    optimizer, reader = Optimizer(), GradientReader(4)
    optimizer.tell(5, 1000.0, 500.0)
    figures = reader.read(optimizer)
    assert figures is not None
    assert figures.num_steps == 5
    assert figures.bytes_sent == pytest.approx(300)
    assert figures.bytes_dense == 2 * 3 / 4 * 4 * 2000
    times = (figures.selecting_s, figures.waiting_s, figures.decoding_s)
    assert times == pytest.approx((30, 15, 7.5))
    assert figures.density == 20 / 2000
    assert figures.group_densities == {"group 0": 0.01, "group 1": 0.01}
    assert figures.deltas == {"a": 0.75}
    assert figures.plan == ""


def test_later_figures_are_of_the_steps_since() -> None:
    optimizer, reader = Optimizer(), GradientReader(2)
    optimizer.tell(5, 1000.0)
    reader.read(optimizer)
    optimizer.tell(9, 1400.0)
    figures = reader.read(optimizer)
    assert figures is not None
    assert (figures.num_steps, figures.bytes_sent) == (4, pytest.approx(100))


def test_no_step_has_no_figures() -> None:
    optimizer, reader = Optimizer(), GradientReader(2)
    assert reader.read(optimizer) is None
    optimizer.tell(3, 300.0)
    assert reader.read(optimizer) is not None
    assert reader.read(optimizer) is None
    assert reader.groups[0].bytes_sent == 100


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, PlanReport(digest="a")),
        (PlanReport(digest="a"), PlanReport(digest="b", num_changes=1)),
        (PlanReport(digest="a"), PlanReport(digest="a", num_changes=2)),
    ],
)
def test_figures_of_another_plan_begin_with_it(
    before: PlanReport | None, after: PlanReport
) -> None:
    optimizer, reader = Optimizer(), GradientReader(2)
    optimizer.tell(5, 1000.0, plan=before)
    reader.read(optimizer)
    optimizer.tell(8, 80.0, plan=after)  # more steps than before: only the plan tells
    figures = reader.read(optimizer)
    assert figures is not None
    assert (figures.num_steps, figures.bytes_sent) == (8, pytest.approx(10))
    assert figures.plan == after.digest


def test_figures_begin_anew_with_fewer_steps_and_with_another_optimizer() -> None:
    optimizer, other, reader = Optimizer(), Optimizer(), GradientReader(2)
    optimizer.tell(5, 1000.0)
    other.tell(6, 60.0)
    reader.read(optimizer)
    figures = reader.read(other)
    assert figures is not None and (figures.num_steps, figures.bytes_sent) == (6, 10)
    other.tell(2, 50.0)  # the ranks are new
    figures = reader.read(other)
    assert figures is not None and (figures.num_steps, figures.bytes_sent) == (2, 25)


@pytest.mark.parametrize(
    "given", [torch.optim.SGD([torch.zeros(1)], lr=1), SimpleNamespace(telemetry=lambda: 3), "adam"]
)
def test_what_does_not_report_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match=r"expected an optimizer of hvs.DistributedOptimizer"):
        GradientReader(2).read(given)


def test_dense_bytes_are_those_of_a_ring() -> None:
    assert dense_bytes(100, 1) == 0
    assert dense_bytes(100, 2) == 400
    assert dense_bytes(100, 4) == 600
