"""The ledger of bytes: arithmetic, and snapshots that do not move."""

from __future__ import annotations

import pytest

from horovod_sylvie.halo.traffic import Traffic, TrafficLedger


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
