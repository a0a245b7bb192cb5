"""P ranks as threads of one process.

Nearly everything that ranks do together is tested, and can be debugged in one debugger, without a
launcher. A rank that raises, returns early or never arrives makes the others raise; none hangs.

This is no transport for training: it copies every tensor and Python's lock serialises the ranks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from torch import Tensor

from .errors import CommunicationError, CommunicationTimeout
from .loopback_results import Contribution, result_of
from .validation import check_name, check_not_in_flight, check_splits, check_tensor

Result = TypeVar("Result")


@dataclass
class _Round:
    """One operation, while ranks arrive and collect their results."""

    contributions: dict[int, Contribution] = field(default_factory=dict)
    num_collected: int = 0


class _World:
    """What the threads share. Every access holds `changed`."""

    def __init__(self, size: int, timeout_s: float) -> None:
        self.size = size
        self.timeout_s = timeout_s
        self.changed = threading.Condition()
        self.rounds: dict[tuple[str, int], _Round] = {}
        self.ended: dict[int, BaseException | None] = {}
        self.gave_up: set[int] = set()  # ranks whose deadline has passed wait no more

    def end(self, rank: int, error: BaseException | None) -> None:
        """Record that a rank runs no more, and wake those who wait for it."""
        with self.changed:
            self.ended[rank] = error
            self.changed.notify_all()


class LoopbackHandle:
    """An operation in flight between threads."""

    def __init__(
        self,
        world: _World,
        rank: int,
        key: tuple[str, int],
        in_flight: set[str],
        finish: Callable[[Tensor], Tensor],
    ) -> None:
        self._world = world
        self._rank = rank
        self._key = key
        self._in_flight = in_flight
        self._finish = finish
        self._waited = False

    @property
    def name(self) -> str:
        """The operation's name."""
        return self._key[0]

    def poll(self) -> bool:
        """Return whether every rank has submitted the operation."""
        with self._world.changed:
            return self._waited or self._complete()

    def wait(self) -> Tensor:
        """Return the result; see `horovod_sylvie.comm.protocol.Handle.wait`."""
        if self._waited:
            raise RuntimeError(f"wait: the handle of '{self.name}' was waited on before.")
        self._waited = True
        self._in_flight.remove(self.name)
        world = self._world
        deadline = time.monotonic() + world.timeout_s
        with world.changed:
            while not self._complete():
                self._raise_if_a_rank_ended()
                if self._rank in world.gave_up:
                    raise CommunicationError(
                        f"rank {self._rank}: '{self.name}' is given up: another one timed out."
                    )
                if not world.changed.wait(deadline - time.monotonic()) and not self._complete():
                    world.gave_up.add(self._rank)
                    raise CommunicationTimeout(
                        f"rank {self._rank}: '{self.name}' was not completed within "
                        f"{world.timeout_s:g} s; not submitted by rank {self._absent()}."
                    )
            round_ = world.rounds[self._key]
            round_.num_collected += 1
            if round_.num_collected == world.size:
                del world.rounds[self._key]
            contributions = [round_.contributions[rank] for rank in range(world.size)]
        return self._finish(result_of(contributions, self._rank, self.name))

    def _complete(self) -> bool:
        return len(self._world.rounds[self._key].contributions) == self._world.size

    def _absent(self) -> str:
        present = self._world.rounds[self._key].contributions
        return ", ".join(str(rank) for rank in range(self._world.size) if rank not in present)

    def _raise_if_a_rank_ended(self) -> None:
        present = self._world.rounds[self._key].contributions
        for rank, error in self._world.ended.items():
            if rank not in present:
                why = "returned" if error is None else f"raised {type(error).__name__}: {error}"
                raise CommunicationError(
                    f"rank {self._rank}: '{self.name}' cannot be completed: rank {rank} {why}."
                ) from error


class LoopbackCommunicator:
    """One thread's end of a loopback group; `run_loopback` makes them."""

    def __init__(self, world: _World, rank: int) -> None:
        self._world = world
        self._rank = rank
        self._num_rounds: dict[str, int] = {}
        self._in_flight: set[str] = set()

    @property
    def rank(self) -> int:
        """This thread's number."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._world.size

    def ranks_changed(self) -> bool:
        """Return False: threads stay."""
        return False

    def allreduce(self, tensor: Tensor, *, name: str) -> LoopbackHandle:
        """Sum a tensor over all ranks, in rank order."""
        check_name("allreduce", name)
        check_tensor("allreduce", tensor, reducible=True)
        return self._submit(name, Contribution("allreduce", tensor.detach().clone()))

    def allreduce_(
        self, tensor: Tensor, *, name: str, prescale: float = 1.0, postscale: float = 1.0
    ) -> LoopbackHandle:
        """Sum a tensor over all ranks in place, in rank order, and scale it."""
        check_name("allreduce_", name)
        check_tensor("allreduce_", tensor, reducible=True)
        return self._submit(
            name,
            Contribution("allreduce_", tensor.detach() * prescale),
            lambda total: tensor.detach().copy_(total * postscale),
        )

    def allgather(self, tensor: Tensor, *, name: str) -> LoopbackHandle:
        """Collect tensors of one shape from all ranks."""
        check_name("allgather", name)
        check_tensor("allgather", tensor, reducible=False)
        return self._submit(name, Contribution("allgather", tensor.detach().clone()))

    def alltoall(
        self, tensor: Tensor, send_splits: Sequence[int], recv_splits: Sequence[int], *, name: str
    ) -> LoopbackHandle:
        """Send consecutive rows of a tensor to each rank."""
        check_name("alltoall", name)
        check_tensor("alltoall", tensor, reducible=False)
        check_splits("alltoall", "send_splits", send_splits, size=self.size, num_rows=len(tensor))
        check_splits("alltoall", "recv_splits", recv_splits, size=self.size, num_rows=None)
        return self._submit(
            name,
            Contribution(
                "alltoall", tensor.detach().clone(), tuple(send_splits), tuple(recv_splits)
            ),
        )

    def _submit(
        self,
        name: str,
        contribution: Contribution,
        finish: Callable[[Tensor], Tensor] = lambda result: result,
    ) -> LoopbackHandle:
        check_not_in_flight(contribution.kind, name, self._in_flight)
        self._in_flight.add(name)
        number = self._num_rounds.get(name, 0)
        self._num_rounds[name] = number + 1
        key = (name, number)
        with self._world.changed:
            round_ = self._world.rounds.setdefault(key, _Round())
            round_.contributions[self._rank] = contribution
            self._world.changed.notify_all()
        return LoopbackHandle(self._world, self._rank, key, self._in_flight, finish)


def run_loopback(
    size: int, function: Callable[[LoopbackCommunicator], Result], *, timeout_s: float = 60.0
) -> list[Result]:
    """Run a function once per rank, each in a thread of its own.

    Args:
        size: Number of ranks, P.
        function: Called with each rank's communicator.
        timeout_s: Deadline of each wait, in seconds.

    Returns:
        What the function returned, by rank. P entries.

    Raises:
        ValueError: `size` is not positive.
        BaseException: What the function raised on the first rank that failed by itself, that is,
            not because of another rank.
    """
    if size < 1:
        raise ValueError(
            f"run_loopback: expected a positive number of ranks for 'size', got {size}."
        )
    world = _World(size, timeout_s)
    results: dict[int, Result] = {}

    def run(rank: int) -> None:
        error: BaseException | None = None
        try:
            results[rank] = function(LoopbackCommunicator(world, rank))
        except BaseException as raised:
            error = raised
        world.end(rank, error)

    threads = [
        threading.Thread(target=run, args=(rank,), name=f"loopback-{rank}", daemon=True)
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [error for _, error in sorted(world.ended.items()) if error is not None]
    errors.sort(key=lambda error: isinstance(error, CommunicationError))
    if errors:
        raise errors[0]
    return [results[rank] for rank in range(size)]
