"""Launchers are chosen by the rates that are asked for, and told them."""

from __future__ import annotations

import math

import pytest
from launchers import (
    EMULATED_HOSTS,
    HOROVODRUN,
    UNLIMITED,
    bits_per_second,
    launch_command,
    launcher_for,
)


@pytest.mark.parametrize(
    ("hosts", "rate", "expected"),
    [
        (4, "100mbit", ["--hosts", "4", "--rate", "100mbit", "--note", "at 100mbit", "--"]),
        (2, "unlimited", ["--hosts", "2", "--rate-unlimited", "--note", "at unlimited", "--"]),
    ],
)
def test_launcher_gets_hosts_and_rate(hosts: int, rate: str, expected: list[str]) -> None:
    template = "lab --hosts {hosts} {rate_option} --note 'at {rate}' --"
    assert launch_command(template, hosts=hosts, rate=rate) == ["lab", *expected]


def test_hosts_are_emulated_where_a_rate_is_asked_for() -> None:
    assert launcher_for([UNLIMITED], None) == HOROVODRUN
    assert launcher_for(["1gbit", UNLIMITED], None) == EMULATED_HOSTS
    words = launch_command(EMULATED_HOSTS, hosts=3, rate="1gbit")
    assert words[2:] == ["--hosts", "3", "--rate", "1gbit", "--"]


def test_launcher_of_the_users_own_must_know_the_rate() -> None:
    assert launcher_for(["1gbit"], "lab {rate}") == "lab {rate}"
    assert launcher_for([UNLIMITED], "lab") == "lab"
    with pytest.raises(ValueError, match=r"rate 1gbit: expected a --launcher with \{rate\}"):
        launcher_for(["1gbit"], "lab --hosts {hosts}")


def test_rates_are_numbers_to_sort_by() -> None:
    assert bits_per_second("2.5mbit") == 2.5e6
    assert bits_per_second(UNLIMITED) == math.inf
    with pytest.raises(ValueError, match="expected a rate"):
        bits_per_second("fast")
