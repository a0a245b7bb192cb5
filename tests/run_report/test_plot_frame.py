"""What charts have in common: labels that do not touch, names that are cut, legends that wrap."""

from __future__ import annotations

from itertools import pairwise

import pytest

from horovod_sylvie.run_report.plot_frame import (
    LINE_HEIGHT,
    NUM_COLOURS,
    apart,
    colour,
    drawing,
    legend,
    shortened,
)
from tests.run_report.drawings import assert_inside, parsed, texts


@pytest.mark.parametrize(
    "wanted", [[], [50.0], [50.0, 50.0, 50.0], [0.0, 99.0, 100.0], [100.0, 1.0, 100.0, 2.0]]
)
def test_places_are_a_gap_apart_and_near(wanted: list[float]) -> None:
    places = apart(wanted, 14, 0, 100)
    order = sorted(places)
    assert all(b - a >= 14 - 1e-9 for a, b in pairwise(order))
    assert all(0 <= place <= 100 for place in places)
    assert len(places) == len(wanted)


def test_places_that_are_apart_stay() -> None:
    assert apart([80.0, 10.0, 40.0], 14, 0, 100) == [80.0, 10.0, 40.0]


@pytest.mark.parametrize(
    ("text", "longest", "expected"),
    [("abcdef", 6, "abcdef"), ("abcdefg", 6, "abc…fg"), ("", 6, ""), ("abcdef", 3, "a…f")],
)
def test_long_names_keep_both_ends(text: str, longest: int, expected: str) -> None:
    assert shortened(text, longest) == expected


def test_colours_begin_again_behind_the_last() -> None:
    assert [colour(number) for number in (0, 1, NUM_COLOURS)] == ["s0", "s1", "s0"]


@pytest.mark.parametrize("shape", ["line", "box"])
def test_legend_wraps_and_says_how_high_it_is(shape: str) -> None:
    names = [(colour(number), f"layers.{number}.weight") for number in range(12)]
    key, height = legend(names, shape)  # type: ignore[arg-type]
    assert height > 2 * LINE_HEIGHT
    root = parsed(drawing("any", "a legend", height, key))
    assert_inside(root)
    assert texts(root, "legend") == [name for _, name in names]


def test_empty_legend_takes_no_room() -> None:
    assert legend([], "line")[1] == 0
