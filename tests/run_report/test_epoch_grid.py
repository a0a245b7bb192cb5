"""The grid: filled where it was so, in runs, over the epochs that there were."""

from __future__ import annotations

import pytest

from horovod_sylvie.run_report.epoch_grid import Track, epoch_grid
from tests.run_report.drawings import Element, assert_inside, elements, number, parsed, texts


def drawn(epochs: list[int], *tracks: Track) -> Element:
    root = parsed(epoch_grid("staleness", "Ages", ("old", "fresh"), epochs, tracks))
    assert_inside(root)
    return root


def track(name: str, filled: set[int], known: set[int]) -> Track:
    return Track(name, frozenset(filled), frozenset(known))


def hints(root: Element, kind: str) -> list[str]:
    rows = elements(root, "g", "row")
    return [each[0].text or "" for row in rows for each in elements(row, "rect", kind)]


def test_runs_of_epochs_are_one_bar_each() -> None:
    root = drawn([1, 2, 3, 4, 5], track("a", {2, 3, 5}, {1, 2, 3, 4, 5}))
    assert hints(root, "s0") == ["a, epochs 2 to 3: old", "a, epochs 5 to 5: old"]
    assert hints(root, "track") == ["a, epochs 1 to 1: fresh", "a, epochs 4 to 4: fresh"]
    assert texts(root, "end") == ["60 %"]


def test_bars_are_as_long_as_their_runs_and_fill_the_axis() -> None:
    root = drawn([1, 2, 3, 4], track("a", {1}, {1, 2, 3, 4}))
    (row,) = elements(root, "g", "row")
    (old,), (fresh,) = elements(row, "rect", "s0"), elements(row, "rect", "track")
    assert number(fresh, "width") == pytest.approx(3 * number(old, "width"), abs=0.05)
    (axis,) = [each for each in elements(root, "line", "axis") if each.get("y1") == each.get("y2")]
    assert number(old, "x") == pytest.approx(number(axis, "x1"), abs=0.02)
    end = number(fresh, "x") + number(fresh, "width")
    assert end == pytest.approx(number(axis, "x2"), abs=0.02)


def test_epochs_in_which_it_is_not_known_stay_empty() -> None:
    root = drawn([1, 2, 3], track("a", {3}, {1, 3}), track("b", set(), {2}))
    assert hints(root, "track") == ["a, epochs 1 to 1: fresh", "b, epochs 2 to 2: fresh"]
    assert texts(root, "end") == ["50 %", "0 %"]


def test_epochs_that_were_not_added_belong_to_the_run_around_them() -> None:
    root = drawn([10, 20, 30], track("a", {10, 20}, {10, 20, 30}))
    assert hints(root, "s0") == ["a, epochs 10 to 20: old"]


def test_one_epoch_is_a_whole_axis() -> None:
    root = drawn([7], track("a", {7}, {7}))
    assert hints(root, "s0") == ["a, epochs 7 to 7: old"]
    assert "7" in texts(root, "tick")
