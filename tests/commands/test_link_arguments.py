"""The units of a link's arguments, and what they mean for P ranks."""

from __future__ import annotations

from argparse import ArgumentParser

import pytest

from horovod_sylvie.commands.link_arguments import (
    NamedLink,
    add_link_arguments,
    link_of,
    parse_numbers,
    parse_rate,
    parse_seconds,
)
from horovod_sylvie.planning.link_model import model_of_link


def test_units_are_read() -> None:
    assert parse_numbers("2,16", "--ranks", 2) == [2, 16]
    assert (parse_rate("10gbit"), parse_rate("1.5Mbit"), parse_rate("9bit")) == (1e10, 1.5e6, 9.0)
    assert (parse_seconds("50us"), parse_seconds("2ms")) == pytest.approx((5e-5, 2e-3))


@pytest.mark.parametrize("text", ["", "1", "2,", "2;3", "-4", "2,1", "two"])
def test_numbers_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected numbers from 2, with commas, for --ranks, got "):
        parse_numbers(text, "--ranks", 2)


def test_link_is_the_one_that_was_named() -> None:
    parser = ArgumentParser()
    add_link_arguments(parser)
    found = link_of(parser.parse_args(["--rate", "1gbit", "--latency", "2s", "--start", "0s"]))
    assert found == NamedLink(1e9, 2.0, 0.0)
    assert found.between(3) == model_of_link(3, 1e9, 2.0, start_s=0.0)
    plain = link_of(parser.parse_args(["--rate", "1bit"]))
    assert (plain.latency_s, plain.start_s) == pytest.approx((5e-5, 1e-3))
