"""A link of a set speed between loopback ranks, for tests of what adapts to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.comm.protocol import Handle


class SlowHandle:
    """An operation that ends no sooner than a time of day."""

    def __init__(self, inner: Handle, ends_s: float) -> None:
        self._inner = inner
        self._ends_s = ends_s

    @property
    def name(self) -> str:
        return self._inner.name

    def poll(self) -> bool:
        return time.perf_counter() >= self._ends_s and self._inner.poll()

    def wait(self) -> Tensor:
        result = self._inner.wait()
        time.sleep(max(0.0, self._ends_s - time.perf_counter()))
        return result


class SlowCommunicator:
    """Passes everything on, one operation after the other, at `seconds_per_byte` and a start.

    Bytes count as a rank hands them over, for every collective alike.
    """

    def __init__(
        self, inner: LoopbackCommunicator, *, start_s: float, seconds_per_byte: float
    ) -> None:
        self.seconds_per_byte = seconds_per_byte
        self._inner = inner
        self._start_s = start_s
        self._free_s = 0.0
        self._lock = threading.Lock()

    @property
    def rank(self) -> int:
        return self._inner.rank

    @property
    def size(self) -> int:
        return self._inner.size

    def ranks_changed(self) -> bool:
        return self._inner.ranks_changed()

    def allreduce(self, tensor: Tensor, *, name: str) -> Handle:
        return self._slow(self._inner.allreduce(tensor, name=name), tensor.nbytes)

    def allreduce_(self, tensor: Tensor, *, name: str, **scales: Any) -> Handle:
        return self._slow(self._inner.allreduce_(tensor, name=name, **scales), tensor.nbytes)

    def allgather(self, tensor: Tensor, *, name: str) -> Handle:
        return self._slow(self._inner.allgather(tensor, name=name), tensor.nbytes)

    def alltoall(
        self, tensor: Tensor, send_splits: Sequence[int], recv_splits: Sequence[int], *, name: str
    ) -> Handle:
        handle = self._inner.alltoall(tensor, send_splits, recv_splits, name=name)
        return self._slow(handle, tensor.nbytes)

    def _slow(self, handle: Handle, nbytes: int) -> Handle:
        with self._lock:
            begins_s = max(self._free_s, time.perf_counter())
            self._free_s = begins_s + self._start_s + nbytes * self.seconds_per_byte
            return SlowHandle(handle, self._free_s)
