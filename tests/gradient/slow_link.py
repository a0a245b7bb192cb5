"""A link of a set speed between loopback ranks, for tests of what adapts to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from torch import Tensor

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.comm.passing import PassingCommunicator, PassingHandle
from horovod_sylvie.comm.protocol import Handle


class SlowHandle(PassingHandle):
    """An operation that ends no sooner than a time of day."""

    def __init__(self, inner: Handle, ends_s: float) -> None:
        super().__init__(inner)
        self._ends_s = ends_s

    def poll(self) -> bool:
        return time.perf_counter() >= self._ends_s and super().poll()

    def wait(self) -> Tensor:
        result = super().wait()
        time.sleep(max(0.0, self._ends_s - time.perf_counter()))
        return result


class SlowCommunicator(PassingCommunicator):
    """Passes everything on, one operation after the other, at `seconds_per_byte` and a start.

    Bytes count as a rank hands them over, for every collective alike.
    """

    def __init__(
        self, inner: LoopbackCommunicator, *, start_s: float, seconds_per_byte: float
    ) -> None:
        super().__init__(inner)
        self.seconds_per_byte = seconds_per_byte
        self._start_s = start_s
        self._free_s = 0.0
        self._lock = threading.Lock()

    def _submit(
        self, kind: str, tensor: Tensor, name: str, start: Callable[[Tensor], Handle]
    ) -> SlowHandle:
        handle = start(tensor)
        with self._lock:
            begins_s = max(self._free_s, time.perf_counter())
            self._free_s = begins_s + self._start_s + tensor.nbytes * self.seconds_per_byte
            return SlowHandle(handle, self._free_s)
