"""What a collective costs: t = alpha_s + nbytes * beta_s_per_byte, per collective, at a given P.

`nbytes` is what one rank hands over: the whole buffer of an allreduce, its own share of an
allgather or an alltoall. What P does to it is inside beta, whether it was measured at that P or
derived from a link's rate.

Shapes: P ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LinearCost:
    """The cost of one collective.

    Attributes:
        alpha_s: Seconds of an empty one.
        beta_s_per_byte: Seconds that each byte adds.
        cpu_s_per_byte: Seconds by which each byte holds up the rank's own computation: where
            tensors are on the CPU, messages take the cores that compute.
    """

    alpha_s: float
    beta_s_per_byte: float
    cpu_s_per_byte: float = 0.0

    def seconds(self, nbytes: float) -> float:
        """Return the seconds of one collective of `nbytes`."""
        return self.alpha_s + nbytes * self.beta_s_per_byte


@dataclass(frozen=True)
class LinkModel:
    """What collectives cost between P ranks.

    Attributes:
        num_ranks: P.
        allreduce: Of a float32 buffer.
        allgather: Of uint8 shares.
        alltoall: Of uint8 shares.
    """

    num_ranks: int
    allreduce: LinearCost
    allgather: LinearCost
    alltoall: LinearCost


def model_of_link(
    num_ranks: int, rate_bits_per_s: float, latency_s: float, *, start_s: float = 0.0
) -> LinkModel:
    """Derive a model from a link's figures, for ring algorithms.

    Args:
        num_ranks: P.
        rate_bits_per_s: Of each rank's link, in each direction.
        latency_s: One way, of one message.
        start_s: What the library adds to each collective (Horovod's cycle, negotiation).

    Returns:
        Allreduce: 2 (P-1) latencies and 2 (P-1)/P bytes per byte; allgather: P-1 and P-1; alltoall:
        P-1 latencies and (P-1)/P bytes per byte.
    """
    byte_s = 8.0 / rate_bits_per_s
    hops = num_ranks - 1
    return LinkModel(
        num_ranks,
        allreduce=LinearCost(start_s + 2 * hops * latency_s, 2 * hops / num_ranks * byte_s),
        allgather=LinearCost(start_s + hops * latency_s, hops * byte_s),
        alltoall=LinearCost(start_s + hops * latency_s, hops / num_ranks * byte_s),
    )


def fit_cost(samples: Sequence[tuple[float, float]]) -> LinearCost:
    """Fit a line to measured times: the start of small sizes, the slope of large ones.

    Between them times bend: a small collective takes what its start takes, however many bytes fit
    into that. So the line is a little above what was measured in the middle.

    Args:
        samples: Bytes and seconds; of at least two different sizes. A straggler makes a time too
            long, never too short, so each size's first quartile stands for it.

    Returns:
        The line through the smallest size, with the slope from the largest size that is at most
        half of the largest one to that. Neither is below 0.

    Raises:
        ValueError: If all samples have one size.
    """
    times: dict[float, list[float]] = {}
    for nbytes, seconds in samples:
        times.setdefault(nbytes, []).append(seconds)
    points = [(size, sorted(found)[len(found) // 4]) for size, found in sorted(times.items())]
    if len(points) < 2:
        raise ValueError(
            f"fit_cost: expected samples of at least two sizes for 'samples', got {len(points)}. "
            "Measure a small and a large collective."
        )
    (smallest, start_s), (largest, longest_s) = points[0], points[-1]
    size, seconds = next(
        (point for point in reversed(points) if 2 * point[0] <= largest), points[0]
    )
    beta = max(0.0, (longest_s - seconds) / (largest - size))
    return LinearCost(max(0.0, start_s - beta * smallest), beta)
