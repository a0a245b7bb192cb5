"""A link of a set speed between loopback ranks, for tests of what adapts to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from torch import Tensor

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.comm.passing import PassingCommunicator, PassingHandle
from horovod_sylvie.comm.protocol import Handle


class WallClock:
    """The machine's time, with all that other programs do to it."""

    def perf_counter(self) -> float:
        return time.perf_counter()

    def sleep_until(self, when_s: float) -> None:
        time.sleep(max(0.0, when_s - time.perf_counter()))


class LinkClock(threading.local):
    """A clock of each rank's own that waiting for the link moves, and nothing else.

    It stands in for the module `time` of what measures the link.
    """

    now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    def sleep_until(self, when_s: float) -> None:
        self.now_s = max(self.now_s, when_s)

    def process_time(self) -> float:
        return 0.0

    thread_time = process_time


class SlowHandle(PassingHandle):
    """An operation that ends no sooner than a time of day."""

    def __init__(self, inner: Handle, ends_s: float, clock: WallClock | LinkClock) -> None:
        super().__init__(inner)
        self._ends_s = ends_s
        self._clock = clock

    def poll(self) -> bool:
        return self._clock.perf_counter() >= self._ends_s and super().poll()

    def wait(self) -> Tensor:
        result = super().wait()
        self._clock.sleep_until(self._ends_s)
        return result


class SlowCommunicator(PassingCommunicator):
    """Passes everything on, one operation after the other, at `seconds_per_byte` and a start.

    Bytes count as a rank hands them over, for every collective alike.
    """

    def __init__(
        self,
        inner: LoopbackCommunicator,
        *,
        start_s: float,
        seconds_per_byte: float,
        clock: WallClock | LinkClock | None = None,
    ) -> None:
        super().__init__(inner)
        self._clock = WallClock() if clock is None else clock
        self.seconds_per_byte = seconds_per_byte
        self._start_s = start_s
        self._free_s = 0.0
        self._lock = threading.Lock()

    def _submit(
        self, kind: str, tensor: Tensor, name: str, start: Callable[[Tensor], Handle]
    ) -> SlowHandle:
        handle = start(tensor)
        with self._lock:
            begins_s = max(self._free_s, self._clock.perf_counter())
            self._free_s = begins_s + self._start_s + tensor.nbytes * self.seconds_per_byte
            return SlowHandle(handle, self._free_s, self._clock)
