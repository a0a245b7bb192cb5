"""The operations of unmodified Horovod, made to behave. Users have `HorovodCommunicator`.

What Horovod leaves to its users is done here, once:

* Every operation has an explicit name. Unnamed ones are paired by call order, which may differ.
* Every wait polls and sleeps instead of spinning in C++, so Ctrl-C works, cores stay free, and a
  deadline can be kept. Horovod's stall inspector finds nothing on the gloo controller, so a rank
  that does not submit an operation would otherwise be waited for without end and without a word.
* What would raise on one rank only is checked before submission.
* After the first failure nothing more is submitted: Horovod's background thread drops tensors
  under its lock while it shuts down, and a late submission can deadlock with it.
* A process that ends while operations are in flight waits for them first. Horovod shuts down on all
  ranks as soon as one of them exits, so a slower rank could not submit its part any more.
* The global process set is the default: a rank that dies inside another set aborts its peers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from .errors import CommunicationError, CommunicationTimeout
from .horovod_build import horovod_failure, require_horovod
from .leaving import LEAVING_S, call_before_exit
from .timeouts import checked_timeout
from .validation import (
    check_gathered_bytes,
    check_name,
    check_not_in_flight,
    check_splits,
    check_tensor,
)

# Most operations end within the first few of these; shorter ones take cores from other ranks
_EAGER_POLL_S: Final = 3e-4
_IDLE_POLL_S: Final = 5e-4
_EAGER_PERIOD_S: Final = 0.02


class HorovodHandle:
    """An operation in flight in Horovod."""

    def __init__(
        self,
        owner: HorovodOperations,
        kind: str,
        name: str,
        number: int,
        num_rows: int | None,
        recv_splits: tuple[int, ...],
    ) -> None:
        self._owner = owner
        self._name = name
        self._number = number
        self._waited = False
        self.kind = kind
        self.num_rows = num_rows  # of an allgather's result
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


class HorovodOperations:
    """All ranks of a `horovodrun` job, or those of one process set.

    `HorovodCommunicator` says what the arguments are, and what is raised.
    """

    def __init__(self, *, timeout_s: float | None = None, process_set: Any = None) -> None:
        hvd = require_horovod()
        if not hvd.is_initialized():
            raise RuntimeError(
                "HorovodCommunicator: Horovod is not initialised. Call hvd.init() first."
            )
        self._hvd: Any = hvd
        self._timeout_s = checked_timeout(timeout_s)
        self._in_flight: dict[str, HorovodHandle] = {}
        self._failure: str | None = None
        self._process_set = hvd.global_process_set if process_set is None else process_set
        if not (self._process_set.process_set_id is not None and self._process_set.included()):
            raise ValueError(
                "HorovodCommunicator: expected a registered process set that holds this process "
                f"(rank {hvd.rank()}) for 'process_set', got {process_set}. Register it with "
                "hvd.add_process_set or hvd.init, and use it on its own ranks only."
            )
        self._rank = int(self._process_set.rank())
        self._size = int(self._process_set.size())
        # Called before Horovod's own shutdown, which hvd.init() has registered before
        call_before_exit(self._await_in_flight)

    @property
    def rank(self) -> int:
        """This process's number."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._size

    @property
    def timeout_s(self) -> float:
        """Deadline of each wait, in seconds."""
        return self._timeout_s

    def ranks_changed(self) -> bool:
        """Return whether Horovod now runs with other ranks than this was made for."""
        return (self._rank, self._size) != (self._process_set.rank(), self._process_set.size())

    def allreduce(self, tensor: Tensor, *, name: str) -> HorovodHandle:
        """Sum a tensor over all ranks."""
        check_name("allreduce", name)
        check_tensor("allreduce", tensor, reducible=True)
        return self._submit(
            "allreduce",
            name,
            lambda: self._hvd.allreduce_async(
                tensor.detach(), name=name, op=self._hvd.Sum, process_set=self._process_set
            ),
        )

    def allreduce_(
        self, tensor: Tensor, *, name: str, prescale: float = 1.0, postscale: float = 1.0
    ) -> HorovodHandle:
        """Sum a tensor over all ranks in place, and scale it."""
        check_name("allreduce_", name)
        check_tensor("allreduce_", tensor, reducible=True)
        return self._submit(
            "allreduce_",
            name,
            lambda: self._hvd.allreduce_async_(
                tensor.detach(),
                name=name,
                op=self._hvd.Sum,
                prescale_factor=prescale,
                postscale_factor=postscale,
                process_set=self._process_set,
            ),
        )

    def allgather(self, tensor: Tensor, *, name: str) -> HorovodHandle:
        """Collect tensors of one shape from all ranks."""
        check_name("allgather", name)
        check_tensor("allgather", tensor, reducible=False)
        check_gathered_bytes("allgather", tensor.nbytes, self.size)
        return self._submit(
            "allgather",
            name,
            lambda: self._hvd.allgather_async(
                tensor.detach(), name=name, process_set=self._process_set
            ),
            num_rows=self.size * len(tensor),
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
            lambda: self._hvd.alltoall_async(
                tensor.detach(), splits=splits, name=name, process_set=self._process_set
            ),
            recv_splits=tuple(recv_splits),
        )

    def _submit(
        self,
        kind: str,
        name: str,
        start: Callable[[], int],
        *,
        num_rows: int | None = None,
        recv_splits: tuple[int, ...] = (),
    ) -> HorovodHandle:
        if self._failure is not None:
            raise CommunicationError(
                f"rank {self.rank}: cannot submit '{name}': communication failed before "
                f"({self._failure}). End this process and start the job again."
            )
        check_not_in_flight(kind, name, self._in_flight)
        try:
            number = start()
        except RuntimeError as error:  # a rank has ended since the last wait
            raise self._failed(kind, name, error) from error
        handle = HorovodHandle(self, kind, name, number, num_rows, recv_splits)
        self._in_flight[name] = handle
        return handle

    def _await_in_flight(self) -> None:
        """Wait until other ranks have taken part in all that was submitted, if they do soon."""
        if self._failure is not None or not self._hvd.is_initialized():
            return
        deadline_s = time.monotonic() + min(self._timeout_s, LEAVING_S)
        for handle in self._in_flight.values():
            while not handle.poll():
                if time.monotonic() > deadline_s:
                    return
                time.sleep(_IDLE_POLL_S)

    def _failed(self, kind: str, name: str, error: Exception) -> CommunicationError:
        self._failure = f"'{name}': {error}"
        return horovod_failure()(
            f"rank {self.rank}: '{name}' ({kind}) failed: {error} Another rank ended, or "
            "submitted something else under this name; its own output says why. If it says "
            "nothing, it was stopped, or the link to it is cut."
        )

    def _has_ended(self, number: int) -> bool:
        return bool(self._hvd.poll(number))

    def _finish(self, handle: HorovodHandle, number: int) -> Tensor:
        if self._failure is not None:
            del self._in_flight[handle.name]
            raise CommunicationError(
                f"rank {self.rank}: '{handle.name}' is given up: communication failed before "
                f"({self._failure})."
            )
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
            raise self._failed(handle.kind, handle.name, error) from error
        rows: Tensor
        if handle.kind != "alltoall":
            rows = result
            self._check_rows(handle, rows)
            return rows
        rows, received = result
        if tuple(received.tolist()) != handle.recv_splits:
            raise CommunicationError(
                f"rank {self.rank}: '{handle.name}' brought {received.tolist()} rows by rank, "
                f"expected {list(handle.recv_splits)}. The ranks use different plans."
            )
        return rows

    def _check_rows(self, handle: HorovodHandle, rows: Tensor) -> None:
        """Horovod gathers different numbers of rows too; no caller of ours does."""
        if handle.num_rows is not None and len(rows) != handle.num_rows:
            self._failure = f"'{handle.name}' brought {len(rows)} rows"
            raise CommunicationError(
                f"rank {self.rank}: '{handle.name}' brought {len(rows)} rows from {self.size} "
                f"ranks, expected {handle.num_rows}. The ranks use different options or models."
            )

    def _timed_out(self, handle: HorovodHandle) -> CommunicationTimeout:
        now_s = time.monotonic()
        pending = ", ".join(
            f"'{other.name}' ({other.kind}, for {now_s - other.submitted_s:.1f} s)"
            for other in list(self._in_flight.values())  # another thread may be submitting
        )
        self._failure = f"'{handle.name}' timed out"
        return CommunicationTimeout(
            f"rank {self.rank} of {self.size}: '{handle.name}' was not completed within "
            f"{self._timeout_s:g} s. Pending here: {pending}. Some rank has not submitted it: it "
            "took another branch, has ended, was stopped, cannot be reached, or is that slow; see "
            "its output. A longer deadline: HorovodCommunicator(timeout_s=...) or HVS_TIMEOUT_S."
        )
