"""Times of calls that run in turn, on the host or on a GPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

import torch

Call = Callable[[], object]
Timer = Callable[[Call], float]

# About 0.2 ms: what a call launches is queued behind it, so that its launches are not timed
_SPIN_CYCLES: Final = 400_000


def timer_of(device: torch.device) -> Timer:
    """Return what runs a call once and returns its seconds.

    On a GPU these are the device's, between two events; on one thread of the host, the thread's
    own, so that other programs disturb less; else the clock's.
    """
    if device.type == "cuda":
        return _device_seconds
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter

    def host_seconds(call: Call) -> float:
        started_s = clock()
        call()
        return clock() - started_s

    return host_seconds


def _device_seconds(call: Call) -> float:
    started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_SPIN_CYCLES)
    started.record()
    call()
    ended.record()
    ended.synchronize()
    return 1e-3 * float(started.elapsed_time(ended))


def time_in_turn(calls: Sequence[Sequence[Call]], timer: Timer, rounds: int) -> list[list[float]]:
    """Run ways to do the same in turn, round after round: a slow moment hits all of them.

    Args:
        calls: Of each way, what it does on several sets of tensors, which take turns too, each way
            at another one: so none is in a cache because another way has just used it.
        timer: Runs a call, and returns its seconds.
        rounds: How often.

    Returns:
        The seconds of each way, round by round.
    """
    times: list[list[float]] = [[] for _ in calls]
    for number in range(rounds):
        for place, (way, own) in enumerate(zip(calls, times, strict=True)):
            own.append(timer(way[(number + place * len(way) // len(calls)) % len(way)]))
    return times


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Return the median of the ratios round by round; of as many rounds as both have."""
    pairs = zip(numerators, denominators, strict=False)
    return statistics.median(numerator / denominator for numerator, denominator in pairs)
