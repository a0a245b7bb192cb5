"""Lines: figures are where the axis says, gaps are gaps, and labels do not touch."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

from horovod_sylvie.run_report.line_chart import Line, line_chart
from horovod_sylvie.run_report.units import PERCENT
from tests.run_report.drawings import (
    Element,
    assert_inside,
    assert_no_text_upon_another,
    elements,
    number,
    parsed,
    texts,
)


def drawn(*lines: Line, **options: Any) -> Element:
    root = parsed(line_chart("test", "A test", lines, **({"y_name": "figure"} | options)))
    assert_inside(root)
    return root


def of(name: str, *values: float, first: int = 1) -> Line:
    return Line(name, tuple(enumerate(values, start=first)))


def test_points_are_where_ticks_say() -> None:
    root = drawn(of("loss", 0.0, 1.0, 0.5))
    marks = elements(root, "circle", "mark")
    labels = {each.text: number(each, "y") for each in elements(root, "text", "tick")}
    assert number(marks[0], "cy") == labels["0.0"]
    assert number(marks[1], "cy") == labels["1.0"]
    epochs = {each.text: number(each, "x") for each in elements(root, "text", "tick")}
    assert [number(mark, "cx") for mark in marks] == [epochs[epoch] for epoch in "123"]


def test_end_of_each_line_tells_its_name_and_newest_figure() -> None:
    root = drawn(of("val", 0.1, 0.9), of("test", 0.1, 0.89), of("train", 0.2, 0.9), unit=PERCENT)
    assert texts(root, "end") == ["val 90.0 %", "test 89.0 %", "train 90.0 %"]
    assert texts(root, "legend") == ["val", "test", "train"]
    assert_no_text_upon_another(root, "end")
    assert texts(root, "axis-name")[0] == "figure, %"


def test_one_line_needs_no_legend() -> None:
    assert texts(drawn(of("loss", 1.0, 2.0)), "legend") == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e305])
def test_figures_that_are_no_numbers_interrupt_the_line_and_are_shaded(bad: float) -> None:
    root = drawn(of("loss", 3.0, 2.0, bad, bad, 1.5, bad, 1.0, 0.9))
    assert len(elements(root, "path", "line")) == 2
    gaps = [each[0].text for each in elements(root, "rect", "gap")]
    assert gaps == ["not a number in epochs 3 to 4", "not a number in epochs 6 to 6"]
    assert len(elements(root, "circle", "mark")) == 5  # 1.5 stands alone
    assert texts(root, "end") == ["loss 0.900"]


def test_line_without_any_number_is_all_gap() -> None:
    root = drawn(of("loss", math.nan, math.nan))
    assert elements(root, "path") == []
    assert len(elements(root, "rect", "gap")) == 1
    assert texts(root, "end") == []


def test_one_epoch_is_one_mark() -> None:
    root = drawn(of("loss", 0.5))
    (mark,) = elements(root, "circle", "mark")
    assert number(mark, "r") > 0
    assert "1" in texts(root, "tick")


def test_no_line_is_an_empty_frame() -> None:
    assert elements(drawn(), "path") == []


def test_thousands_of_epochs_are_thinned_and_keep_their_extremes() -> None:
    values = [math.sin(epoch / 7) for epoch in range(5000)]
    values[3210] = 40.0
    root = drawn(of("loss", *values))
    (path,) = elements(root, "path", "line")
    assert path.attrib["d"].count("L") < 700
    assert elements(root, "circle") == []
    assert len(elements(root, "rect", "strip")) <= 200
    places = [float(pair.split()[1]) for pair in path.attrib["d"][1:].split("L")]
    labels = {each.text: number(each, "y") for each in elements(root, "text", "tick")}
    assert min(places) == pytest.approx(labels["40"], abs=0.1)


def test_figures_far_apart_are_on_a_logarithmic_axis() -> None:
    root = drawn(of("loss", 2.3, 0.1, 0.001))
    assert texts(root, "axis-name")[0] == "figure (logarithmic)"
    first, second, third = (number(mark, "cy") for mark in elements(root, "circle", "mark"))
    assert (second - first) / (third - second) == pytest.approx(math.log(23) / math.log(100), 1e-2)


def test_reference_is_drawn_from_side_to_side_and_named() -> None:
    root = drawn(of("a", 0.1, 0.2), reference=("bound", 0.5))
    (across,) = elements(root, "line", "reference")
    assert number(across, "y1") == number(across, "y2")
    assert texts(root, "end") == ["a 0.200", "bound 0.500"]


def test_axis_is_of_the_epochs_that_are_named() -> None:
    root = drawn(of("test", 0.5, first=5), epochs=(1, 9))
    ticks = {each.text: number(each, "x") for each in elements(root, "text", "tick")}
    (mark,) = elements(root, "circle", "mark")
    assert number(mark, "cx") == ticks["5"] == pytest.approx((ticks["1"] + ticks["9"]) / 2, abs=0.1)


def test_strips_cover_the_chart_and_tell_the_figures_of_their_epoch() -> None:
    root = drawn(of("a", 0.5, math.nan, 0.7), of("b", 1.0, 2.0))
    strips = elements(root, "rect", "strip")
    assert [strip[0].text for strip in strips] == [
        "epoch 1\na: 0.500\nb: 1.00",
        "epoch 2\na: not a number\nb: 2.00",
        "epoch 3\na: 0.700",
    ]
    ends = [(number(each, "x"), number(each, "x") + number(each, "width")) for each in strips]
    assert all(a[1] == pytest.approx(b[0], abs=0.02) for a, b in pairwise(ends))


def test_many_long_names_stay_inside_and_apart() -> None:
    lines = [of(f"layers.{n}.self_attention.in_proj_weight", 0.5, 0.5) for n in range(7)]
    root = drawn(*lines)
    assert_no_text_upon_another(root, "end")
    assert len(texts(root, "end")) == 7
