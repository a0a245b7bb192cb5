"""When rows of the epoch before may be used: tables by hand, and bad options."""

from __future__ import annotations

import math

import pytest

from horovod_sylvie.halo.epoch_clock import EpochClock
from horovod_sylvie.halo.staleness import BoundedStaleness, Pipelined, Staleness, Synchronous


def stale_epochs(rule: Staleness, num_epochs: int, drift: float = math.nan) -> list[int]:
    return [epoch for epoch in range(num_epochs) if rule.allows(epoch, drift)]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Synchronous(), []),
        (Pipelined(), [5, 6, 7, 8, 9]),
        (Pipelined(warmup=0), list(range(10))),
        (Pipelined(start="zeros"), list(range(10))),
        # the paper's adaptor: an epoch with (epoch + 1) mod E = 0 is synchronous
        (Pipelined(sync_every=1, start="zeros"), []),
        (Pipelined(sync_every=3, start="zeros"), [0, 1, 3, 4, 6, 7, 9]),
        (Pipelined(sync_every=4, warmup=2), [2, 4, 5, 6, 8, 9]),
    ],
)
def test_epochs_in_which_rows_may_be_old(rule: Staleness, expected: list[int]) -> None:
    assert stale_epochs(rule, 10) == expected


def test_bounded_staleness_decides_by_the_drift() -> None:
    rule = BoundedStaleness(max_drift=0.2, warmup=1)
    assert stale_epochs(rule, 3, 0.2) == [1, 2]
    assert stale_epochs(rule, 3, 0.2000001) == []
    assert stale_epochs(rule, 3, math.nan) == []
    assert stale_epochs(BoundedStaleness(max_drift=0.0, warmup=0), 3, 0.0) == []


def test_what_rules_need() -> None:
    assert not Synchronous().keeps_rows and Pipelined().keeps_rows
    assert BoundedStaleness().measures_drift and not Pipelined().measures_drift
    assert Pipelined(start="zeros").starts_from_zeros and not Pipelined().starts_from_zeros


@pytest.mark.parametrize("sync_every", [0, -1, 1.5, True])
def test_bad_period_raises(sync_every: object) -> None:
    with pytest.raises(ValueError, match="Pipelined: expected a number of epochs from 1, or None"):
        Pipelined(sync_every=sync_every)  # type: ignore[arg-type]


@pytest.mark.parametrize("max_drift", [-0.1, math.nan, math.inf, "0.1", True])
def test_bad_bound_raises(max_drift: object) -> None:
    with pytest.raises(ValueError, match="BoundedStaleness: expected a finite number from 0"):
        BoundedStaleness(max_drift=max_drift)  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", [Pipelined, BoundedStaleness])
def test_bad_warmup_and_start_raise(rule: type) -> None:
    with pytest.raises(ValueError, match=f"{rule.__name__}: expected a number of epochs from 0"):
        rule(warmup=-1)
    with pytest.raises(ValueError, match="expected 'synchronous' or 'zeros' for 'start'"):
        Pipelined(start="random")  # type: ignore[arg-type]


def test_clock_numbers_the_calls_of_a_layer_in_an_epoch() -> None:
    clock = EpochClock()
    assert not clock.is_running
    assert [clock.slot(name) for name in "aabab"] == ["a", "a#1", "b", "a#2", "b#1"]
    assert clock.is_running and not clock.is_over
    clock.go_backward()
    assert clock.is_over
    clock.end_epoch()
    assert (clock.epoch, clock.is_running, clock.is_over) == (1, False, False)
    assert clock.slot("a") == "a"
    clock.resume_at(7)
    assert (clock.epoch, clock.is_running) == (7, False)
