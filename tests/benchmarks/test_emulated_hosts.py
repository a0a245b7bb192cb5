"""The program that emulates hosts is told what it can do, and shapes every link both ways."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from emulated_hosts import MARK, burst_of, commands_for, parse_arguments


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--hosts 2", "expected the command of a rank behind --, got none"),
        ("--hosts 0 -- a", "--hosts: expected 1 to 200, got 0"),
        ("--slots 0 -- a", "--slots: expected at least 1, got 0"),
        ("--rate fast -- a", "expected a rate such as 10gbit or 100mbit for --rate, got 'fast'"),
        ("--change 1gbit", "--change: expected to run in a rank on emulated hosts"),
    ],
)
def test_argument_out_of_range_is_said(
    words: str, message: str, refusal: Callable[..., str]
) -> None:
    assert message in refusal(parse_arguments, words.split())


def test_link_cannot_be_changed_to_no_limit(
    monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., str]
) -> None:
    monkeypatch.setenv(MARK, "1")
    assert parse_arguments(["--change", "1gbit"]).change == "1gbit"
    error = refusal(parse_arguments, ["--change", "unlimited"])
    assert "--change: expected a rate such as 100mbit, got none" in error


def test_rank_command_keeps_its_own_options() -> None:
    args = parse_arguments(["--hosts", "3", "--", "python", "train.py", "--hosts", "9", "--", "x"])
    assert args.hosts == 3
    assert args.command == ["python", "train.py", "--hosts", "9", "--", "x"]


def test_every_link_is_shaped_in_both_directions() -> None:
    shaped = [line for line in commands_for(3, "1gbit") if "tbf rate 1gbit burst 125000" in line]
    assert [line.split(" root ")[0] for line in shaped] == [
        f"nsenter --net={network} tc qdisc replace dev {device}"
        for number in (1, 2, 3)
        for network, device in (
            (f"/run/netns/host{number}", "eth0"),
            ("/proc/1/ns/net", f"port{number}"),
        )
    ]
    assert not [line for line in commands_for(3, "unlimited") if "tbf" in line]


def test_burst_is_a_millisecond_or_what_tcp_hands_down_at_once() -> None:
    assert burst_of("100mbit") == 32_000
    assert burst_of("1gbit") == 125_000
