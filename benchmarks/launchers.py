"""Launchers: commands that get the command of a rank behind them, and start it on each host.

A launcher must start one process per host with Horovod's environment (HOROVOD_RANK, ...), the first
of them where it can write to this machine's temporary folder; limit what each host sends and
receives to the rate; end with another status than 0 if a rank does; and on SIGTERM end all that it
started. {hosts} stands for the number of hosts, {rate} for the rate ("100mbit", "unlimited"), and
{rate_option} for "--rate 100mbit" or "--rate-unlimited".

Where none is named, `emulated_hosts.py` emulates hosts behind links of the rates that are asked
for; and if no rate is, horovodrun starts the ranks, on this machine.
"""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Collection
from pathlib import Path
from typing import Final

from horovod_sylvie.commands.link_arguments import parse_rate

UNLIMITED: Final = "unlimited"
HOROVODRUN: Final = f"{Path(sys.executable).with_name('horovodrun')} --gloo -np {{hosts}}"
# glibc gives large blocks back to the system at once; faulting them in takes up to half of an epoch
KEEP_MEMORY: Final = (
    *("env", "MALLOC_MMAP_MAX_=0", f"MALLOC_TRIM_THRESHOLD_={2**34}"),
    f"MALLOC_TOP_PAD_={2**26}",
)
RANKS_HOROVODRUN: Final = HOROVODRUN.replace("{hosts}", "{ranks}")  # of ranks on this machine
EMULATED_HOSTS: Final = (
    f"{sys.executable} {Path(__file__).with_name('emulated_hosts.py')} "
    "--hosts {hosts} --rate {rate} --"
)


def bits_per_second(rate: str) -> float:
    """Return a rate as a number: "100mbit" is 1e8, "unlimited" infinity.

    Raises:
        ValueError: It is no rate.
    """
    return float("inf") if rate == UNLIMITED else parse_rate(rate)


def launcher_for(rates: Collection[str], launcher: str | None) -> str:
    """Return the launcher for links of some rates.

    Args:
        rates: Such as "100mbit" or "unlimited".
        launcher: The user's own; None for none.

    Raises:
        ValueError: The user's own knows no rate, and there are some.
    """
    is_limited = any(rate != UNLIMITED for rate in rates)
    if launcher is None:
        return EMULATED_HOSTS if is_limited else HOROVODRUN
    if is_limited and "{rate" not in launcher:
        raise ValueError(
            f"rate {', '.join(rates)}: expected a --launcher with {{rate}} or {{rate_option}}, "
            f"got {launcher!r}. Without --launcher, hosts are emulated."
        )
    return launcher


def choose_launcher(parser: ArgumentParser, args: Namespace, rates: Collection[str]) -> None:
    """Let `args.launcher` be the launcher for links of some rates, or end with a message."""
    try:
        args.launcher = launcher_for(rates, args.launcher)
    except ValueError as error:
        parser.error(str(error))


def launch_command(launcher: str, *, hosts: int, rate: str) -> list[str]:
    """Return the launcher's command for a number of hosts and a rate."""
    option = "--rate-unlimited" if rate == UNLIMITED else f"--rate {rate}"
    return shlex.split(launcher.format(hosts=hosts, rate=rate, rate_option=option))
