"""What a rank measures by a device's clock, whose times are there later than the host asks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.gradient import adaptive_plan
from horovod_sylvie.gradient.exchange import ExchangeCost
from horovod_sylvie.gradient.rank_measurements import RankMeasurements
from horovod_sylvie.gradient.top_k_exchange import TopKExchange
from horovod_sylvie.planning.plan import Plan
from tests.device.fake_streams import FakeClock
from tests.gradient.test_adaptive_plan import (
    BACKWARD_S,
    SLOW,
    lags,
    make_wide_model,
    plan_of,
    selected,
    slow,
    train_wide,
)
from tests.gradient.training import exchange_of, make_model, on_ranks, top_k, train, wrap


def exchanges() -> list[Any]:
    """Return what the host has counted: launches, on a device."""
    cost = ExchangeCost(num_steps=1, selection_s=77.0, decoding_s=88.0)
    return [SimpleNamespace(cost=cost)]


def run_step(measurements: RankMeasurements) -> None:
    """Take a step of two gradients, each with a pause behind it."""
    for name in ("b", "a"):
        measurements.arrive(name)
        with measurements.paused():
            pass
    measurements.end_step([])


# By mark: begin, then b, stop, go on, a, stop, go on, and the end
STEP_S = [0.0, 5.0, 6.0, 8.0, 11.0, 11.0, 12.0, 20.0]


def test_times_are_those_of_the_device_without_its_pauses() -> None:
    clock = FakeClock(STEP_S, num_complete=8)
    measurements = RankMeasurements(clock)
    measurements.begin_step()
    run_step(measurements)
    measured = measurements.measured(exchanges())
    assert measured.intervals_s == {"b": 5.0, "a": 4.0}  # 11 - 5, of which it stood still for 2
    assert (measured.prepare_s, measured.step_s) == (3.0, 20.0)
    assert measured.decode_s == 0.0  # not known: the host has seen launches only


def test_steps_are_read_when_the_device_has_come_past_them_and_not_before() -> None:
    clock = FakeClock(STEP_S + [20.0 + 2 * at_s for at_s in STEP_S[1:]])
    measurements = RankMeasurements(clock)
    measurements.begin_step()
    run_step(measurements)
    run_step(measurements)
    assert measurements.measured([]).as_dict() == {
        "intervals_s": {},
        "prepare_s": 0.0,
        "decode_s": 0.0,
        "step_s": 0.0,
    }
    clock.num_complete = 8
    assert measurements.measured([]).step_s == 20.0
    clock.num_complete = 14  # all but the end of the second step
    assert measurements.measured([]).step_s == 20.0
    clock.num_complete = 15
    measured = measurements.measured([])
    assert measured.step_s == pytest.approx(30.0)  # the medians of both
    assert measured.intervals_s == pytest.approx({"b": 7.5, "a": 6.0})
    assert measured.prepare_s == pytest.approx(4.5)


def test_steps_of_a_plan_before_are_forgotten_also_where_they_are_not_read_yet() -> None:
    clock = FakeClock(STEP_S * 2)
    measurements = RankMeasurements(clock)
    measurements.begin_step()
    run_step(measurements)
    measurements.forget_steps()
    clock.num_complete = 8
    assert measurements.measured([]).step_s == 0.0


def test_step_that_is_not_finished_is_forgotten() -> None:
    clock = FakeClock([100.0, 107.0, *STEP_S], num_complete=10)
    measurements = RankMeasurements(clock)
    measurements.arrive("before any step")
    measurements.begin_step()
    measurements.arrive("b")
    measurements.begin_step()
    run_step(measurements)
    assert measurements.measured([]).intervals_s == {"b": 5.0, "a": 4.0}


def test_what_the_host_counts_is_used_where_it_computes() -> None:
    measurements = RankMeasurements()
    measurements.begin_step()
    run_step(measurements)
    measured = measurements.measured(exchanges())
    assert (measured.prepare_s, measured.decode_s) == (77.0, 88.0)
    assert measured.step_s > 0.0
    assert all(seconds >= 0.0 for seconds in measured.intervals_s.values())


@pytest.mark.parametrize("on_host", [True, False])
def test_waits_of_the_host_tell_of_the_link_only_where_it_computes(on_host: bool) -> None:
    def body(comm: Any) -> None:
        model = make_model()
        optimizer = wrap(model, comm, compression=top_k())
        train(model, optimizer, comm, range(1))
        started = exchange_of(optimizer).exchanges
        for number, exchange in enumerate(started):
            exchange.cost.submitted_s, exchange.cost.completed_s = 0.0, 1.0 + number
        # A sum before what was selected: what comes after its end is the link's
        started.sort(key=lambda each: isinstance(each, TopKExchange))
        measurements = RankMeasurements(None if on_host else FakeClock([0.0] * 9))
        measurements.begin_step()
        measurements.end_step(started)
        assert bool(measurements.observed()) is on_host

    on_ranks(2, body)


class LateClock:
    """The host's times, as a device has them: complete when so many more marks were made."""

    is_of_host = False

    def __init__(self, num_later: int) -> None:
        self.num_marks = 0
        self._num_later = num_later

    def mark(self) -> LateMark:
        self.num_marks += 1
        return LateMark(self, self.num_marks + self._num_later, time.perf_counter())


@dataclass
class LateMark:
    """A moment of a `LateClock`."""

    owner: LateClock
    complete_at: int
    at_s: float

    def is_complete(self) -> bool:
        return self.owner.num_marks >= self.complete_at

    def seconds_after(self, earlier: LateMark) -> float:
        assert self.is_complete() and earlier.is_complete(), "a time is read before it is there"
        return self.at_s - earlier.at_s


def test_plans_are_made_from_times_that_come_steps_later(monkeypatch: pytest.MonkeyPatch) -> None:
    # A step of this model has some ten marks
    monkeypatch.setattr(adaptive_plan, "clock_of", lambda devices: LateClock(25))

    def body(comm: LoopbackCommunicator) -> tuple[Plan, dict[str, float]]:
        model = make_wide_model()
        optimizer = wrap(model, slow(comm, SLOW), compression=lags())  # type: ignore[arg-type]
        train_wide(model, optimizer, comm.rank, 22)
        exchange = exchange_of(optimizer)
        assert exchange.adaptive is not None
        measured = exchange.adaptive.measurements.measured(exchange.exchanges)
        assert 0.0 < measured.prepare_s < measured.step_s
        return plan_of(optimizer), measured.intervals_s

    results = on_ranks(2, body)
    assert results[0][0] == results[1][0]
    assert selected(results[0][0]) < 0.2
    for _, intervals_s in results:
        assert intervals_s["0.weight"] + intervals_s["0.bias"] >= BACKWARD_S
