"""The arguments that name a link, and the units that they are written in."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from horovod_sylvie.planning.link_model import LinkModel

_UNITS: Final = MappingProxyType({"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9})
_SECONDS: Final = MappingProxyType({"s": 1.0, "ms": 1e-3, "us": 1e-6})


@dataclass(frozen=True)
class NamedLink:
    """A link as it was named, for any number of ranks.

    Attributes:
        rate_bits_per_s: Of each rank's link, in each direction.
        latency_s: One way, of one message.
        start_s: What each collective costs beside.
    """

    rate_bits_per_s: float
    latency_s: float
    start_s: float

    def between(self, num_ranks: int) -> LinkModel:
        """Return what collectives cost between P ranks."""
        from horovod_sylvie.planning.link_model import model_of_link

        return model_of_link(num_ranks, self.rate_bits_per_s, self.latency_s, start_s=self.start_s)


def add_link_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --rate, --latency and --start.

    Args:
        parser: The command's own parser.
    """
    parser.add_argument("--rate", required=True, help="of each rank's link: 10gbit, 100mbit")
    parser.add_argument("--latency", default="50us", help="one way; default: 50us")
    parser.add_argument(
        "--start", default="1ms", help="what each collective costs beside; default: 1ms"
    )


def link_of(arguments: argparse.Namespace) -> NamedLink:
    """Return the link that was named.

    Args:
        arguments: What `add_link_arguments` asked for.

    Raises:
        ValueError: An argument that cannot be read.
    """
    return NamedLink(
        parse_rate(arguments.rate),
        parse_seconds(arguments.latency),
        parse_seconds(arguments.start),
    )


def parse_rate(text: str) -> float:
    """Return bits per second: "10gbit" is 1e10."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)bit", text.lower())
    if match is None or not float(match[1]) > 0:
        raise ValueError(f"expected a rate such as 10gbit or 100mbit for --rate, got {text!r}.")
    return float(match[1]) * _UNITS[match[2]]


def parse_seconds(text: str) -> float:
    """Return seconds: "50us" is 5e-5."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|ms|us)", text.lower())
    if match is None:
        raise ValueError(f"expected a time such as 50us or 1ms, got {text!r}.")
    return float(match[1]) * _SECONDS[match[2]]


def parse_numbers(text: str, option: str, lowest: int) -> list[int]:
    """Return whole numbers: "4,16" is [4, 16].

    Args:
        text: What was given.
        option: The argument's name, for the message.
        lowest: What each number is at least.

    Raises:
        ValueError: Another form, or a lower number.
    """
    if not re.fullmatch(r"\d+(,\d+)*", text) or any(int(n) < lowest for n in text.split(",")):
        raise ValueError(
            f"expected numbers from {lowest}, with commas, for {option}, got {text!r}."
        )
    return [int(number) for number in text.split(",")]
