"""The communicator over unmodified Horovod.

What Horovod leaves to its users is done here, once:

* Every operation has an explicit name. Unnamed ones are paired by call order, which may differ.
* Every wait polls and sleeps instead of spinning in C++, so Ctrl-C works, cores stay free, and a
  deadline can be kept. Horovod's stall inspector finds nothing on the gloo controller, so a rank
  that does not submit an operation would otherwise be waited for without end and without a word.
* What would raise on one rank only is checked before submission.
* After the first failure nothing more is submitted: Horovod's background thread drops tensors
  under its lock while it shuts down, and a late submission can deadlock with it.
* Only the global process set is used: a rank that dies inside another set aborts its peers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from .errors import CommunicationError, CommunicationTimeout
from .horovod_build import require_horovod
from .validation import check_name, check_not_in_flight, check_splits, check_tensor

_DEFAULT_TIMEOUT_S: Final = 300.0
_EAGER_POLL_S: Final = 5e-5  # most operations end within the first few of these
_IDLE_POLL_S: Final = 5e-4
_EAGER_PERIOD_S: Final = 0.02


class HorovodHandle:
    """An operation in flight in Horovod."""

    def __init__(
        self,
        owner: HorovodCommunicator,
        kind: str,
        name: str,
        number: int,
        recv_splits: tuple[int, ...],
    ) -> None:
        self._owner = owner
        self._name = name
        self._number = number
        self._waited = False
        self.kind = kind
        self.recv_splits = recv_splits  # empty but for an alltoall
        self.submitted_s = time.monotonic()

    @property
    def name(self) -> str:
        """The operation's name."""
        return self._name

    def poll(self) -> bool:
        """Return whether `wait` would return at once."""
        return self._waited or self._owner._has_ended(self._number)

    def wait(self) -> Tensor:
        """Return the result; see `horovod_sylvie.comm.protocol.Handle.wait`."""
        if self._waited:
            raise RuntimeError(f"wait: the handle of '{self.name}' was waited on before.")
        self._waited = True
        return self._owner._finish(self, self._number)


class HorovodCommunicator:
    """All ranks of a `horovodrun` job.

    Args:
        timeout_s: Deadline of each wait, in seconds. The default is the environment variable
            HVS_TIMEOUT_S, or 300.

    Raises:
        ImportError: Horovod is missing or was built without PyTorch; the text has the command.
        RuntimeError: `hvd.init()` was not called.
        ValueError: The deadline is not positive.
    """

    def __init__(self, *, timeout_s: float | None = None) -> None:
        hvd = require_horovod()
        if not hvd.is_initialized():
            raise RuntimeError(
                "HorovodCommunicator: Horovod is not initialised. Call hvd.init() first."
            )
        self._hvd: Any = hvd
        self._timeout_s = _checked_timeout(timeout_s)
        self._in_flight: dict[str, HorovodHandle] = {}
        self._failure: str | None = None
        self._rank = int(hvd.rank())
        self._size = int(hvd.size())

    @property
    def rank(self) -> int:
        """This process's number."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._size

    def allreduce(self, tensor: Tensor, *, name: str) -> HorovodHandle:
        """Sum a tensor over all ranks."""
        check_name("allreduce", name)
        check_tensor("allreduce", tensor, reducible=True)
        hvd = self._hvd
        return self._submit(
            "allreduce", name, lambda: hvd.allreduce_async(tensor.detach(), name=name, op=hvd.Sum)
        )

    def allgather(self, tensor: Tensor, *, name: str) -> HorovodHandle:
        """Collect tensors of one shape from all ranks."""
        check_name("allgather", name)
        check_tensor("allgather", tensor, reducible=False)
        return self._submit(
            "allgather", name, lambda: self._hvd.allgather_async(tensor.detach(), name=name)
        )

    def alltoall(
        self, tensor: Tensor, send_splits: Sequence[int], recv_splits: Sequence[int], *, name: str
    ) -> HorovodHandle:
        """Send consecutive rows of a tensor to each rank."""
        check_name("alltoall", name)
        check_tensor("alltoall", tensor, reducible=False)
        check_splits("alltoall", "send_splits", send_splits, size=self.size, num_rows=len(tensor))
        check_splits("alltoall", "recv_splits", recv_splits, size=self.size, num_rows=None)
        splits = torch.tensor(send_splits, dtype=torch.int32)
        return self._submit(
            "alltoall",
            name,
            lambda: self._hvd.alltoall_async(tensor.detach(), splits=splits, name=name),
            tuple(recv_splits),
        )

    def _submit(
        self, kind: str, name: str, start: Callable[[], int], recv_splits: tuple[int, ...] = ()
    ) -> HorovodHandle:
        if self._failure is not None:
            raise CommunicationError(
                f"rank {self.rank}: cannot submit '{name}': communication failed before "
                f"({self._failure}). End this process and start the job again."
            )
        check_not_in_flight(kind, name, self._in_flight)
        handle = HorovodHandle(self, kind, name, start(), recv_splits)
        self._in_flight[name] = handle
        return handle

    def _has_ended(self, number: int) -> bool:
        return bool(self._hvd.poll(number))

    def _finish(self, handle: HorovodHandle, number: int) -> Tensor:
        started_s = time.monotonic()
        while not self._hvd.poll(number):
            waited_s = time.monotonic() - started_s
            if waited_s > self._timeout_s:
                raise self._timed_out(handle)
            time.sleep(_EAGER_POLL_S if waited_s < _EAGER_PERIOD_S else _IDLE_POLL_S)
        del self._in_flight[handle.name]
        try:
            result: Any = self._hvd.synchronize(number)
        except Exception as error:  # HorovodInternalError, whose place moved between releases
            self._failure = f"'{handle.name}': {error}"
            raise CommunicationError(
                f"rank {self.rank}: '{handle.name}' ({handle.kind}) failed: {error} "
                "Another rank ended, or submitted something else under this name; "
                "its own output says why."
            ) from error
        rows: Tensor
        if handle.kind != "alltoall":
            rows = result
            return rows
        rows, received = result
        if tuple(received.tolist()) != handle.recv_splits:
            raise CommunicationError(
                f"rank {self.rank}: '{handle.name}' brought {received.tolist()} rows by rank, "
                f"expected {list(handle.recv_splits)}. The ranks use different plans."
            )
        return rows

    def _timed_out(self, handle: HorovodHandle) -> CommunicationTimeout:
        now_s = time.monotonic()
        pending = ", ".join(
            f"'{other.name}' ({other.kind}, for {now_s - other.submitted_s:.1f} s)"
            for other in self._in_flight.values()
        )
        self._failure = f"'{handle.name}' timed out"
        return CommunicationTimeout(
            f"rank {self.rank} of {self.size}: '{handle.name}' was not completed within "
            f"{self._timeout_s:g} s. Pending here: {pending}. Some rank has not submitted it: it "
            "took another branch, has ended, or is that slow; see its output. A longer deadline: "
            "HorovodCommunicator(timeout_s=...) or HVS_TIMEOUT_S."
        )


def _checked_timeout(timeout_s: float | None) -> float:
    source = "timeout_s"
    value: float | str = _DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s
    if timeout_s is None and "HVS_TIMEOUT_S" in os.environ:
        source, value = "HVS_TIMEOUT_S", os.environ["HVS_TIMEOUT_S"]
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ValueError(
            f"HorovodCommunicator: expected a positive number of seconds for '{source}', "
            f"got {value!r}."
        )
    return seconds
