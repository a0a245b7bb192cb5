"""A communicator for tensors on a device whose inner one moves host memory.

A tensor is copied to page-locked memory behind the kernels that write it, in a stream of its own,
and the operation is submitted once the copy is complete. Nobody waits for that in the call that
starts it: a hook has to go on. So copies are asked for in every later call of any operation, and
while one waits. Ranks may come to submit in different orders; names pair the operations.

There is no thread that does it in between. A program that keeps the host away from all of this,
waiting for the device between `backward()` and `step()` for instance, holds messages up meanwhile.

Tensors on the host pass straight through.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from ..device.pinned import PinnedBuffers, laid_out
from ..device.streams import DeviceEvent, DeviceStreams
from .errors import CommunicationTimeout
from .leaving import LEAVING_S
from .passing import PassingCommunicator, PassingHandle
from .protocol import Communicator, Handle
from .validation import (
    check_gathered_bytes,
    check_name,
    check_not_in_flight,
    check_splits,
    check_tensor,
)

_POLL_S: Final = 2e-4


@dataclass
class _Operation:
    """One operation on a device tensor.

    Attributes:
        kind: Name of the method that was called.
        name: The operation's name.
        tensor: What it was given; kept until the operation is over, as its copy reads it.
        buffer: Page-locked memory.
        host: Its first bytes, as `tensor` is laid out.
        copied: When `host` is written.
        start: Submits a host tensor to the inner communicator.
        handle: The inner communicator's, once it is submitted.
        failure: Why the inner communicator refused it.
    """

    kind: str
    name: str
    tensor: Tensor
    buffer: Tensor
    host: Tensor
    copied: DeviceEvent
    start: Callable[[Tensor], Handle]
    handle: Handle | None = None
    failure: Exception | None = None

    def submit(self) -> None:
        """Submit the copy. What is raised belongs to whoever waits, not to whoever happens by."""
        try:
            self.handle = self.start(self.host)
        except Exception as error:
            self.failure = error

    def is_over(self) -> bool:
        """Return whether a wait would return, or raise, at once."""
        return self.failure is not None or (self.handle is not None and self.handle.poll())


class StagedHandle:
    """An operation in flight on a device tensor."""

    def __init__(self, owner: StagedCommunicator, operation: _Operation) -> None:
        self._owner = owner
        self._operation = operation
        self._waited = False

    @property
    def name(self) -> str:
        """The operation's name."""
        return self._operation.name

    def poll(self) -> bool:
        """Return whether `wait` would return at once."""
        self._owner.submit_copied()
        return self._waited or self._operation.is_over()

    def wait(self) -> Tensor:
        """Return the result; see `horovod_sylvie.comm.protocol.Handle.wait`."""
        if self._waited:
            raise RuntimeError(f"wait: the handle of '{self.name}' was waited on before.")
        self._waited = True
        return self._owner._finish(self._operation)


class _HostHandle(PassingHandle):
    """An operation in flight on a host tensor; others may become ready while one waits for it."""

    def __init__(self, owner: StagedCommunicator, inner: Handle) -> None:
        super().__init__(inner)
        self._owner = owner

    def poll(self) -> bool:
        self._owner.submit_copied()
        return super().poll()

    def wait(self) -> Tensor:
        self._owner._submit_until(self._inner.poll)
        return super().wait()


class StagedCommunicator(PassingCommunicator):
    """Moves device tensors through page-locked host memory.

    Args:
        inner: What communicates between hosts; it gets host tensors only.
        streams: Copies.
        timeout_s: Deadline of each copy, in seconds from when it is waited for.
    """

    def __init__(self, inner: Communicator, streams: DeviceStreams, *, timeout_s: float) -> None:
        super().__init__(inner)
        self._streams = streams
        self._timeout_s = timeout_s
        self._buffers = PinnedBuffers(streams.allocate)
        self._in_flight: set[str] = set()
        self._copying: dict[str, _Operation] = {}  # in the order of their copies
        # Hooks run in autograd's threads
        self._lock = threading.RLock()

    def allgather(self, tensor: Tensor, *, name: str) -> Handle:
        """Collect tensors of one shape from all ranks."""
        if self._streams.holds(tensor):
            check_gathered_bytes("allgather", tensor.nbytes, self.size)
        return super().allgather(tensor, name=name)

    def alltoall(
        self, tensor: Tensor, send_splits: Sequence[int], recv_splits: Sequence[int], *, name: str
    ) -> Handle:
        """Send consecutive rows of a tensor to each rank."""
        if self._streams.holds(tensor):
            rows = len(tensor)
            check_splits("alltoall", "send_splits", send_splits, size=self.size, num_rows=rows)
            check_splits("alltoall", "recv_splits", recv_splits, size=self.size, num_rows=None)
        # Kept until the copy is complete: the caller's lists may change before
        return super().alltoall(tensor, tuple(send_splits), tuple(recv_splits), name=name)

    def submit_copied(self) -> None:
        """Submit what has come to the host. Does not block."""
        with self._lock:
            for operation in list(self._copying.values()):
                # One stream copies them all, in this order: behind the first nothing is complete
                if not operation.copied.is_complete():
                    return
                del self._copying[operation.name]
                operation.submit()

    def leave(self) -> None:
        """Submit what is being copied, at the end of the program: others wait for it."""
        self._submit_until(lambda: False, min(self._timeout_s, LEAVING_S))

    def _submit(
        self, kind: str, tensor: Tensor, name: str, start: Callable[[Tensor], Handle]
    ) -> Handle:
        self.submit_copied()
        check_not_in_flight(kind, name, self._in_flight)
        if not self._streams.holds(tensor):
            return _HostHandle(self, start(tensor))
        # What the inner communicator checks when it is too late for the caller
        check_name(kind, name)
        check_tensor(kind, tensor, reducible=kind.startswith("allreduce"))
        tensor = tensor.detach()
        with self._lock:
            buffer = self._buffers.take(tensor.nbytes)
            host = laid_out(buffer, tensor)
            copied = self._streams.copy_out(tensor, host)
            operation = _Operation(kind, name, tensor, buffer, host, copied, start)
            self._copying[name] = operation
            self._in_flight.add(name)
        return StagedHandle(self, operation)

    def _submit_until(self, is_over: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Submit what comes to the host, for as long as something is being copied.

        Args:
            is_over: Says that the caller has what it waits for.
            timeout_s: Deadline in seconds; None for that of a copy.
        """
        deadline_s = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        self.submit_copied()
        while self._copying and not is_over() and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
            self.submit_copied()

    def _finish(self, operation: _Operation) -> Tensor:
        self._submit_until(operation.is_over)
        if operation.handle is None and operation.failure is None:
            raise self._timed_out(operation)  # it stays in flight
        self._in_flight.remove(operation.name)
        if operation.handle is None:
            assert operation.failure is not None, "it was submitted, or refused"
            raise operation.failure
        # Where other copies were late, the inner communicator's own deadline begins here
        return self._brought_back(operation, operation.handle.wait())

    def _brought_back(self, operation: _Operation, result: Tensor) -> Tensor:
        """Copy a result to the device. What fails on the way leaves its buffer to what holds it."""
        device = operation.tensor.device
        with self._lock:
            if operation.kind == "allreduce_":
                out, read = self._streams.copy_in(result, device, operation.tensor)
                self._buffers.give_back(operation.buffer, read)
                return out
            self._buffers.give_back(operation.buffer)
            buffer = self._buffers.take(result.nbytes)
            host = laid_out(buffer, result)
            host.copy_(result)
            out, read = self._streams.copy_in(host, device)
            self._buffers.give_back(buffer, read)
            return out

    def _timed_out(self, operation: _Operation) -> CommunicationTimeout:
        names = ", ".join(f"'{name}' ({each.kind})" for name, each in self._copying.items())
        return CommunicationTimeout(
            f"rank {self.rank} of {self.size}: '{operation.name}' was not submitted: its tensor "
            f"was not copied to the host within {self._timeout_s:g} s. Being copied here: {names}. "
            "The kernels that come before it on the device have not ended; look for one that "
            "hangs. A longer deadline: HorovodCommunicator(timeout_s=...) or HVS_TIMEOUT_S."
        )
