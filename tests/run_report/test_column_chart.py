"""Columns: parts upon each other, as high as their sum; many epochs are means."""

from __future__ import annotations

from itertools import pairwise

import pytest

from horovod_sylvie.run_report.column_chart import MOST_COLUMNS, Column, binned, column_chart
from horovod_sylvie.run_report.units import Unit
from tests.run_report.drawings import Element, assert_inside, elements, number, parsed, texts

KINDS = [("rest", "computing"), ("s1", "waiting")]


def drawn(columns: list[Column]) -> Element:
    unit = Unit("ms", 1e3)
    root = parsed(column_chart("time", "Times", KINDS, columns, y_name="time", unit=unit))
    assert_inside(root)
    return root


def columns_of(number: int, first: int = 1) -> list[Column]:
    return [Column(epoch, epoch, (0.1, 0.05)) for epoch in range(first, first + number)]


def heights(root: Element, kind: str) -> list[float]:
    columns = elements(root, "g", "column")
    return [number(each, "height") for column in columns for each in elements(column, "rect", kind)]


def test_parts_stand_upon_each_other_and_are_as_high_as_they_are() -> None:
    root = drawn([Column(1, 1, (0.1, 0.05)), Column(2, 2, (0.2, 0.0))])
    ticks = {each.text: number(each, "y") for each in elements(root, "text", "tick")}
    per_ms = (ticks["0"] - ticks["200"]) / 200
    assert heights(root, "rest") == pytest.approx([100 * per_ms, 200 * per_ms], abs=0.02)
    assert heights(root, "s1") == pytest.approx([50 * per_ms, 0], abs=0.02)
    lower, upper = (elements(root, "rect", kind)[1] for kind, _ in KINDS)  # behind the legend's
    assert number(lower, "y") == pytest.approx(
        number(upper, "y") + number(upper, "height"), abs=0.02
    )
    assert texts(root, "end") == ["150 ms", "200 ms"]
    assert texts(root, "legend") == ["computing", "waiting"]


def test_hint_tells_every_part() -> None:
    (column,) = elements(drawn(columns_of(1)), "g", "column")
    assert column[0].text == "epoch 1\ncomputing: 100 ms\nwaiting: 50.0 ms"


@pytest.mark.parametrize("num_epochs", [1, 2, 13, MOST_COLUMNS])
def test_every_epoch_has_a_column(num_epochs: int) -> None:
    root = drawn(columns_of(num_epochs))
    assert len(elements(root, "g", "column")) == num_epochs
    lefts = [number(each, "x") for each in elements(root, "rect", "rest")[1:]]
    assert lefts == sorted(set(lefts))


def test_many_epochs_are_means_of_as_many_each() -> None:
    columns = [Column(epoch, epoch, (float(epoch), 0.0)) for epoch in range(1, 2 * MOST_COLUMNS)]
    shown = binned(columns)
    assert len(shown) == MOST_COLUMNS
    assert shown[0] == Column(1, 2, (1.5, 0.0))
    assert shown[0].name == "epoch 1 to 2"
    assert shown[-1] == Column(2 * MOST_COLUMNS - 1, 2 * MOST_COLUMNS - 1, (119.0, 0.0))
    assert len(elements(drawn(columns), "g", "column")) == MOST_COLUMNS


def test_labels_are_numbers_of_epochs_and_do_not_touch() -> None:
    root = drawn(columns_of(300, first=41))
    bottom = max(number(each, "y") for each in elements(root, "text", "tick"))
    labels = [each for each in elements(root, "text", "tick") if number(each, "y") == bottom]
    assert labels[0].text == "41"
    places = [number(each, "x") for each in labels]
    assert all(b - a > 30 for a, b in pairwise(places))


def test_no_time_at_all_is_drawn() -> None:
    assert heights(drawn([Column(1, 1, (0.0, 0.0))]), "rest") == [0.0]
    assert elements(drawn([]), "g", "column") == []
