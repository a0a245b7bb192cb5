"""Bars: as long as their figures, from the same left, with their text beside them."""

from __future__ import annotations

import pytest

from horovod_sylvie.run_report.bar_rows import Row, remaining_rows, stacked_rows
from tests.run_report.drawings import Element, assert_inside, elements, number, parsed, texts

KINDS = [("rest", "dense"), ("s0", "sent")]
ROWS = [Row("a", (100.0, 10.0), "100 → 10"), Row("b", (50.0, 50.0), "50 → 50")]


def bars(root: Element, kind: str) -> list[tuple[float, float]]:
    rows = elements(root, "g", "row")
    found = [each for row in rows for each in elements(row, "rect", kind)]
    return [(number(each, "x"), number(each, "width")) for each in found]


def test_what_is_left_is_drawn_upon_the_whole() -> None:
    root = parsed(remaining_rows("bytes", "Bytes", KINDS, ROWS))
    assert_inside(root)
    (x, whole), (_, half) = bars(root, "rest")
    assert half == pytest.approx(whole / 2, abs=0.02)
    assert bars(root, "s0") == [
        (x, pytest.approx(whole / 10, abs=0.02)),
        (x, pytest.approx(half, abs=0.02)),
    ]
    assert texts(root, "end") == ["100 → 10", "50 → 50"]
    assert texts(root, "tick") == ["a", "b"]
    assert texts(root, "legend") == ["dense", "sent"]


def test_parts_follow_each_other() -> None:
    root = parsed(stacked_rows("time", "Times", KINDS, ROWS))
    assert_inside(root)
    for (x, width), (behind, _) in zip(bars(root, "rest"), bars(root, "s0"), strict=True):
        assert behind == pytest.approx(x + width, abs=0.02)


def test_what_is_not_nothing_is_seen_and_nothing_is_not() -> None:
    rows = [Row("a", (1e9, 1.0), ""), Row("b", (1e9, 0.0), "")]
    widths = [width for _, width in bars(parsed(remaining_rows("", "", KINDS, rows)), "s0")]
    assert widths == [1.0, 0.0]


def test_row_of_text_alone_does_not_set_the_scale() -> None:
    rows = [*ROWS, Row("9 others", (), "1000 → 1")]
    root = parsed(remaining_rows("", "", KINDS, rows))
    assert len(bars(root, "rest")) == 2
    assert texts(root, "end")[-1] == "1000 → 1"


def test_long_names_are_cut_and_told_in_full_by_the_hint() -> None:
    name = "encoder.layers.17.self_attention.in_proj_weight"
    root = parsed(remaining_rows("", "", KINDS, [Row(name, (2.0, 1.0), "2 → 1")]))
    assert_inside(root)
    assert texts(root, "tick") == ["encoder.layers…n_proj_weight"]
    (row,) = elements(root, "g", "row")
    assert row[0].text == f"{name}\n2 → 1\ndense: 2\nsent: 1"


@pytest.mark.parametrize("rows", [[], [Row("a", (0.0, 0.0), "0 B → 0 B")]])
def test_nothing_sent_is_drawn(rows: list[Row]) -> None:
    assert_inside(parsed(remaining_rows("", "", KINDS, rows)))
