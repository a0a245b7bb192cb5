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
_FASTEST_S_PER_BYTE: Final = 1e-12  # where the measurement found none


@dataclass(frozen=True)
class NamedLink:
    """A link as it was named, for any number of ranks.

    Attributes:
        rate_bits_per_s: Of each rank's link, in each direction.
        latency_s: One way, of one message.
        start_s: What each collective costs beside.
        rank: Of the process that plans: there is one.
    """

    rate_bits_per_s: float
    latency_s: float
    start_s: float
    rank: int = 0

    def between(self, num_ranks: int) -> LinkModel:
        """Return what collectives cost between P ranks."""
        from horovod_sylvie.planning.link_model import model_of_link

        return model_of_link(num_ranks, self.rate_bits_per_s, self.latency_s, start_s=self.start_s)


@dataclass(frozen=True)
class MeasuredLink:
    """A link as it was measured between the ranks of this job.

    Attributes:
        rank: This process's.
        measured: What collectives cost between the ranks of this job.
        latency_s: One way, of one message; for other numbers of ranks.
    """

    rank: int
    measured: LinkModel
    latency_s: float

    def between(self, num_ranks: int) -> LinkModel:
        """Return what collectives cost between P ranks: for others than this job's, by rings."""
        from horovod_sylvie.planning.link_model import model_of_link

        found = self.measured
        if num_ranks == found.num_ranks:
            return found
        hops = found.num_ranks - 1
        byte_s = max(found.allgather.beta_s_per_byte / hops, _FASTEST_S_PER_BYTE)
        start_s = max(0.0, found.allgather.alpha_s - hops * self.latency_s)
        return model_of_link(num_ranks, 8.0 / byte_s, self.latency_s, start_s=start_s)


def add_link_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --rate or --measure, --latency and --start.

    Args:
        parser: The command's own parser.
    """
    link = parser.add_mutually_exclusive_group(required=True)
    link.add_argument("--rate", help="of each rank's link: 10gbit, 100mbit")
    link.add_argument(
        "--measure", action="store_true", help="measure the link between the ranks of this job"
    )
    parser.add_argument("--latency", default="50us", help="one way; default: 50us")
    parser.add_argument(
        "--start", help="what each collective costs beside, with --rate; default: 1ms"
    )


def link_of(arguments: argparse.Namespace) -> NamedLink | MeasuredLink:
    """Return the link that was named, or measure it.

    Args:
        arguments: What `add_link_arguments` asked for.

    Raises:
        ValueError: An argument that cannot be read.
    """
    if arguments.measure and arguments.start is not None:
        raise ValueError("--start goes with --rate: --measure finds it. Leave it out.")
    if arguments.measure:
        return measure_link(parse_seconds(arguments.latency))
    return NamedLink(
        parse_rate(arguments.rate),
        parse_seconds(arguments.latency),
        parse_seconds(arguments.start or "1ms"),
    )


def measure_link(latency_s: float) -> MeasuredLink:
    """Measure what collectives cost between the ranks that `horovodrun` has started.

    Args:
        latency_s: See `MeasuredLink`.

    Raises:
        ImportError: Horovod is missing.
        ValueError: There is one rank only.

    Note:
        Collective.
    """
    import torch

    from horovod_sylvie.comm.horovod import HorovodCommunicator
    from horovod_sylvie.comm.horovod_build import require_horovod
    from horovod_sylvie.gradient.link_samples import LinkSamples

    require_horovod().init()
    comm = HorovodCommunicator()
    if comm.size < 2:
        raise ValueError(
            "expected at least two ranks for --measure, got one. Start the command on the hosts "
            "that will train: horovodrun -np 4 -H ... python -m horovod_sylvie plan ... --measure"
        )
    samples = LinkSamples(comm, torch.device("cpu"))
    samples.calibrate()
    return MeasuredLink(comm.rank, samples.model(), latency_s)


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
