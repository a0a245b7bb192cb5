"""The ledger of bytes and times: arithmetic, and snapshots that do not move."""

from __future__ import annotations

import pytest

from horovod_sylvie.halo.traffic import ExchangeTimes, Traffic, TrafficLedger


def test_traffic_sum_and_difference_are_by_field() -> None:
    early, late = Traffic(1, 20, 300), Traffic(4, 50, 600)
    assert early + late == Traffic(5, 70, 900)
    assert late - early == Traffic(3, 30, 300)
    assert (early + late) - late == early
    assert early + Traffic() == early


def test_ledger_adds_up_under_layer_and_direction() -> None:
    ledger = TrafficLedger()
    ledger.record("a", "forward", 10, 100)
    ledger.record("a", "forward", 11, 101)
    ledger.record("a", "backward", 5, 50)
    ledger.record("b", "forward", 1, 2)
    assert dict(ledger.entries) == {
        ("a", "forward"): Traffic(2, 21, 201),
        ("a", "backward"): Traffic(1, 5, 50),
        ("b", "forward"): Traffic(1, 1, 2),
    }


def test_total_of_directions_covers_all_layers() -> None:
    ledger = TrafficLedger()
    ledger.record("a", "features", 1, 1)
    ledger.record("a", "forward", 10, 100)
    ledger.record("b", "forward", 20, 200)
    ledger.record("b", "backward", 40, 400)
    assert ledger.total("forward") == Traffic(2, 30, 300)
    assert ledger.total("forward", "backward") == Traffic(3, 70, 700)
    assert ledger.total("evaluation") == Traffic()
    assert ledger.total() == Traffic(4, 71, 701)
    directions = ("features", "forward", "backward", "evaluation")
    assert sum((ledger.total(one) for one in directions), Traffic()) == ledger.total()


def test_total_of_new_ledger_is_zero() -> None:
    assert TrafficLedger().total() == Traffic(0, 0, 0)


def test_snapshot_does_not_follow_the_ledger_and_cannot_be_written() -> None:
    ledger = TrafficLedger()
    ledger.record("a", "forward", 10, 100)
    before, total = ledger.entries, ledger.total()
    ledger.record("a", "forward", 10, 100)
    ledger.record("b", "forward", 10, 100)
    assert dict(before) == {("a", "forward"): Traffic(1, 10, 100)}
    assert ledger.total() - total == Traffic(2, 20, 200)
    with pytest.raises(TypeError, match="does not support item assignment"):
        before["a", "forward"] = Traffic()  # type: ignore[index]


def test_times_sum_and_difference_are_by_field() -> None:
    early, late = ExchangeTimes(1.0, 0.5, 0.25), ExchangeTimes(4.0, 2.0, 1.0)
    assert early + late == ExchangeTimes(5.0, 2.5, 1.25)
    assert late - early == ExchangeTimes(3.0, 1.5, 0.75)


def test_times_of_directions_are_what_was_recorded_of_them() -> None:
    ledger = TrafficLedger()
    assert ledger.times() == ExchangeTimes()
    ledger.record_times("forward", ExchangeTimes(encoding_s=1.0))
    ledger.record_times("forward", ExchangeTimes(waiting_s=2.0, decoding_s=4.0))
    ledger.record_times("evaluation", ExchangeTimes(waiting_s=8.0))
    assert ledger.times("forward", "backward") == ExchangeTimes(1.0, 2.0, 4.0)
    assert ledger.times() == ExchangeTimes(1.0, 10.0, 4.0)
