"""Figures as text: three digits, a unit that suits, and no surprise at either end."""

from __future__ import annotations

import math

import pytest

from horovod_sylvie.run_report.units import (
    NUMBER,
    PERCENT,
    byte_unit,
    bytes_text,
    figure_text,
    log_tick_text,
    second_unit,
    seconds_text,
    tick_text,
    times_less,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1.00"),
        (-2.345, "−2.35"),
        (0.01234, "0.0123"),
        (0.0001, "0.000100"),
        (0.00001234, "1.23e−5"),
        (123.4, "123"),
        (123456, "123,456"),
        (1e6, "1e6"),
        (-1.5e30, "−1.5e30"),
        (math.nan, "not a number"),
        (math.inf, "not a number"),
    ],
)
def test_figure_has_three_digits(value: float, text: str) -> None:
    assert figure_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(0, "0 B"), (1023, "1,023 B"), (1024, "1.00 KiB"), (1.5 * 2**20, "1.50 MiB")],
        *[(2**30, "1.00 GiB"), (2**40, "1.00 TiB"), (2**50, "1,024 TiB")],
    ],
)
def test_bytes_have_the_largest_unit_that_leaves_one(value: float, text: str) -> None:
    assert bytes_text(value) == text


def test_unit_is_that_of_the_largest() -> None:
    unit = byte_unit(3 * 2**20)
    assert (unit.suffix, unit.text(2**19)) == ("MiB", "0.500 MiB")


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 s"), (90, "90.0 s"), (0.25, "250 ms"), (0.0000025, "2.50 µs")]
)
def test_seconds_have_a_unit_that_suits(value: float, text: str) -> None:
    assert seconds_text(value) == text
    assert second_unit(value).text(value) == text


def test_shares_are_per_cent_and_numbers_bare() -> None:
    assert PERCENT.text(0.9725) == "97.2 %"
    assert NUMBER.text(0.5) == "0.500"


@pytest.mark.parametrize(
    ("sent", "full", "text"),
    [(1, 28.4, "28.4× less"), (1, 1, ""), (2, 1, ""), (0, 5, ""), (0, 0, "")],
)
def test_less_is_said_only_where_it_is_less(sent: float, full: float, text: str) -> None:
    assert times_less(sent, full) == text


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [
        *[(0, 1, "0"), (0.5, 0.1, "0.5"), (2, 0.5, "2.0"), (1500, 500, "1,500"), (-1, 1, "−1")],
        *[(0.001, 0.0005, "0.0010"), (2e6, 1e6, "2e6"), (0, 1e6, "0"), (0, 1e-9, "0")],
    ],
)
def test_ticks_have_the_decimals_of_their_step(value: float, step: float, text: str) -> None:
    assert tick_text(value, step) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1, "1"), (0.02, "0.02"), (500, "500"), (1e-7, "1e−7"), (1e12, "1e12")]
)
def test_logarithmic_ticks_have_one_digit(value: float, text: str) -> None:
    assert log_tick_text(value) == text
