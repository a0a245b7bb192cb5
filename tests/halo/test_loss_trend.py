"""The base bit that the trend of the loss asks for."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horovod_sylvie.halo.loss_trend import LossTrend


def bases(losses: Sequence[float], state: LossTrend | None = None) -> list[int]:
    """Return the base after each loss."""
    state = LossTrend() if state is None else state
    found = []
    for loss in losses:
        state = state.observe(loss)
        found.append(state.base)
    return found


def follow(step: Callable[[int], float], num_epochs: int) -> list[float]:
    """Return losses whose moving average is changed by step(epoch) in each epoch but the first."""
    average, losses = 100.0, [100.0]
    for epoch in range(1, num_epochs):
        losses.append(average + step(epoch) / 0.1)
        average += step(epoch)
    return losses


def test_loss_that_falls_more_and_more_slowly_doubles_the_base_up_to_eight() -> None:
    found = bases(follow(lambda epoch: -(0.8**epoch), 45))
    assert found == [1] * 9 + [2] * 10 + [4] * 10 + [8] * 16


def test_loss_that_falls_faster_and_faster_halves_the_base_down_to_one() -> None:
    found = bases(follow(lambda epoch: -(1.1**epoch), 45), LossTrend(base=8))
    assert found == [8] * 9 + [4] * 10 + [2] * 10 + [1] * 16


def test_loss_that_stands_still_doubles_the_base() -> None:
    assert bases([0.3] * 10)[-2:] == [1, 2]


def test_loss_that_jumps_up_and_down_changes_nothing() -> None:
    found = bases(follow(lambda epoch: -1.0 if epoch % 2 else 2.0, 60), LossTrend(base=4))
    assert found == [4] * 60


def test_one_speed_out_of_order_within_the_window_stops_a_change() -> None:
    def step(epoch: int) -> float:
        return -(0.8**epoch) * (3.0 if epoch == 7 else 1.0)

    found = bases(follow(step, 16))
    # it fits once it is the first of its window, that of epochs 7 to 11
    assert found == [1] * 11 + [2] * 5


def test_nothing_changes_before_start() -> None:
    losses = follow(lambda epoch: -(0.8**epoch), 30)
    assert bases(losses, LossTrend(start=20, hold=1)).index(2) == 20
    assert bases(losses, LossTrend(start=0, hold=1)).index(2) == 5  # a window of five speeds


@pytest.mark.parametrize("every", [2, 3, 4, 7])
def test_base_changes_only_where_it_may_and_then_by_all_losses(every: int) -> None:
    state, free, changes = LossTrend(), LossTrend(hold=100), []
    for epoch, loss in enumerate(follow(lambda epoch: -(0.8**epoch), 60)):
        before = state.base
        state = state.observe(loss, may_change=epoch % every == 0)
        free = free.observe(loss)
        assert state.smoothed == free.smoothed
        if state.base != before:
            changes.append(epoch)
    first = next(epoch for epoch in range(9, 60) if epoch % every == 0)
    apart = next(epochs for epochs in range(10, 60) if epochs % every == 0)
    assert changes == [first, first + apart, first + 2 * apart]
    assert state.base == 8


def test_a_full_window_and_hold_lie_between_changes() -> None:
    losses = follow(lambda epoch: -(0.8**epoch), 60)
    for hold, apart in ((1, 5), (5, 5), (7, 7), (20, 20)):
        found = bases(losses, LossTrend(hold=hold, start=0))
        changes = [epoch for epoch in range(1, 60) if found[epoch] != found[epoch - 1]]
        assert [late - early for early, late in pairwise(changes)] == [apart] * 2


def test_average_starts_at_the_first_loss_and_moves_by_a_tenth() -> None:
    state = LossTrend().observe(5.0)
    assert (state.smoothed, state.speeds) == (5.0, ())
    state = state.observe(4.0)
    assert state.smoothed == pytest.approx(4.9)
    assert state.speeds == (pytest.approx(0.1),)
    state = state.observe(6.0)
    assert state.smoothed == pytest.approx(5.01)
    assert state.speeds[-1] == pytest.approx(0.11)


def test_observing_leaves_the_state_as_it_was() -> None:
    state = LossTrend().observe(5.0)
    state.observe(1.0)
    assert state == LossTrend().observe(5.0)


@given(
    losses=st.lists(st.floats(-1e6, 1e6), max_size=40),
    more=st.lists(st.floats(-1e6, 1e6), max_size=20),
)
@settings(max_examples=100, deadline=None)
def test_state_from_numbers_goes_on_as_the_first_would(
    losses: list[float], more: list[float]
) -> None:
    state = LossTrend(base=2, hold=3, start=4)
    for loss in losses:
        state = state.observe(loss)
    numbers = state.to_numbers()
    assert len(numbers) <= 11
    raw = struct.pack(f"{len(numbers)}d", *numbers)  # as a checkpoint keeps them
    again = LossTrend.from_numbers(struct.unpack(f"{len(numbers)}d", raw))
    assert again == state
    assert all(type(a) is type(b) for a, b in zip(again.to_numbers(), numbers, strict=True))
    assert bases(more, again) == bases(more, state)


@pytest.mark.parametrize(
    "numbers",
    [
        (),
        (1, 10, 9, 0, 0),
        (1.5, 10, 9, 0, 0, 0.0),
        (3, 10, 9, 0, 0, 0.0),
        (1, 0, 9, 0, 0, 0.0),
        (1, 10, -1, 0, 0, 0.0),
        (1, 10, 9, -2, 0, 0.0),
        (1, 10, 9, 2, 3, 0.0),
        (1, 10, 9, math.nan, 0, 0.0),
        (1, 10, 9, 2, 1, math.nan),
        (1, 10, 9, 9, 9, 0.0, math.inf),
        (1, 10, 9, 9, 9, 0.0, *[1.0] * 6),
    ],
)
def test_numbers_that_are_no_state_raise(numbers: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="LossTrend.*: expected .*, got "):
        LossTrend.from_numbers(numbers)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_loss_that_is_not_finite_raises(loss: float) -> None:
    text = "LossTrend.observe: expected a finite number for 'loss', got .* too large learning rate"
    with pytest.raises(ValueError, match=text):
        LossTrend().observe(loss)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"base": 3}, r"expected one of \(1, 2, 4, 8\) for 'base', got 3"),
        ({"hold": 0}, "expected an int of at least 1 for 'hold', got 0"),
        ({"start": 1.0}, "expected an int of at least 0 for 'start', got 1.0"),
    ],
)
def test_option_that_is_not_allowed_raises(options: dict[str, float], text: str) -> None:
    with pytest.raises(ValueError, match="LossTrend: " + text):
        LossTrend(**options)  # type: ignore[arg-type]
