"""Times of what a device computes, read when they are there: the host never waits for them.

Hooks run when kernels are queued, not when they have run. So on a GPU a time of the host says
nothing about the kernels, and an event in their stream does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch

_POLL_S: Final = 1e-4


class Mark(Protocol):
    """A moment of a clock."""

    def is_complete(self) -> bool:
        """Return whether it has come. Never blocks."""
        ...

    def seconds_after(self, earlier: Any) -> float:
        """Return the seconds since another mark of the same clock; both must be complete."""
        ...


class Clock(Protocol):
    """Marks moments."""

    @property
    def is_of_host(self) -> bool:
        """Whether marks are moments of the host, complete at once."""
        ...

    def mark(self) -> Mark:
        """Mark when all is done that was begun, or given to the current stream, so far."""
        ...


@dataclass(frozen=True)
class HostMark:
    """A moment of the host. `at_s`: by `time.perf_counter`."""

    at_s: float

    def is_complete(self) -> bool:
        """Return True."""
        return True

    def seconds_after(self, earlier: HostMark) -> float:
        """Return the seconds between both."""
        return self.at_s - earlier.at_s


class HostClock:
    """The clock of computations on the host: what was begun is done."""

    is_of_host: Final = True

    def mark(self) -> HostMark:
        """Mark now."""
        return HostMark(time.perf_counter())


class CudaMark:
    """A moment of a CUDA stream.

    Args:
        event: Recorded, with timing.
    """

    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def is_complete(self) -> bool:
        """Return whether the stream has come past it."""
        return bool(self._event.query())

    def seconds_after(self, earlier: CudaMark) -> float:
        """Return the seconds between both."""
        return float(earlier._event.elapsed_time(self._event)) / 1e3


class CudaClock:
    """The clock of the current stream of one GPU.

    Args:
        device: Which.
    """

    is_of_host: Final = False

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> CudaMark:
        """Mark when the current stream has done what it was given so far."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return CudaMark(event)


def clock_of(devices: Iterable[torch.device]) -> Clock:
    """Return the clock of what is computed on devices.

    Args:
        devices: Where tensors are. Of several GPUs no two events can be compared: the host's clock
            is for them, and its times are too short.
    """
    kinds = set(devices)
    if len(kinds) == 1 and next(iter(kinds)).type == "cuda":
        return CudaClock(kinds.pop())
    return HostClock()


def settle(mark: Mark) -> None:
    """Wait until a mark is complete; for measurements that wait anyway."""
    while not mark.is_complete():
        time.sleep(_POLL_S)
