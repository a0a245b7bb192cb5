"""A device on the host, whose copies end when they are told to, or at random; and its clock.

Copies are made when they are complete and not before. What a device would not notice is noted: a
source that was changed while it was copied, a buffer that was used again too early.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.comm.staged import StagedCommunicator

_GARBAGE = 0xEE


def bytes_of(tensor: Tensor) -> bytes:
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes()


@dataclass(eq=False)
class FakeCopy:
    """One copy, and the event behind it. `target`: None where it was written at once."""

    owner: FakeStreams
    source: Tensor
    target: Tensor | None
    before: bytes
    done: bool = False

    def is_complete(self) -> bool:
        self.owner.go_on_at_random()
        return self.done


@dataclass
class FakeStreams:
    """Streams of a device whose tensors are those that `is_held` says; all of them by default.

    Attributes:
        seed: Of random progress, at each question for an event; None to be told by `complete`.
        chance: Of one more copy being complete at such a question.
        in_order: Whether copies out are complete in the order in which they began.
        faults: What went wrong.
        num_allocated: Buffers made.
        adopted: What was given to the current stream.
    """

    seed: int | None = None
    chance: float = 0.3
    in_order: bool = True
    is_held: Callable[[Tensor], bool] = lambda tensor: True
    faults: list[str] = field(default_factory=list)
    num_allocated: int = 0
    adopted: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.outgoing: list[FakeCopy] = []
        self.incoming: list[FakeCopy] = []
        self._random = random.Random(self.seed)

    def holds(self, tensor: Tensor) -> bool:
        return self.is_held(tensor)

    def allocate(self, nbytes: int) -> Tensor:
        self.num_allocated += 1
        return torch.full((nbytes,), _GARBAGE, dtype=torch.uint8)

    def copy_out(self, source: Tensor, host: Tensor) -> FakeCopy:
        host.view(-1).view(torch.uint8).fill_(_GARBAGE)
        copy = FakeCopy(self, source, host, bytes_of(source))
        self.outgoing.append(copy)
        return copy

    def copy_in(
        self, host: Tensor, device: torch.device, out: Tensor | None = None
    ) -> tuple[Tensor, FakeCopy]:
        # The current stream, which is the host here, waits for the copy; others may not know of it
        target = host.clone() if out is None else out.copy_(host)
        copy = FakeCopy(self, host, None, bytes_of(host))
        self.incoming.append(copy)
        return target, copy

    def adopt(self, tensor: Tensor) -> None:
        self.adopted.append(tensor)

    def is_copying_to(self, host: Tensor) -> bool:
        """Return whether memory is still to be written by a copy."""
        return host.numel() > 0 and any(
            copy.target is not None and copy.target.data_ptr() == host.data_ptr()
            for copy in self.outgoing
        )

    def complete(self, copies: list[FakeCopy], place: int = 0) -> None:
        """Let one copy of `outgoing` or `incoming` be complete."""
        copy = copies.pop(place)
        if bytes_of(copy.source) != copy.before:
            self.faults.append("a source was changed while it was copied")
        if copy.target is not None:
            copy.target.copy_(copy.source)
        copy.done = True

    def complete_all(self) -> None:
        for copies in (self.outgoing, self.incoming):
            while copies:
                self.complete(copies)

    def go_on_at_random(self) -> None:
        for copies, in_order in ((self.outgoing, self.in_order), (self.incoming, False)):
            if self.seed is not None and copies and self._random.random() < self.chance:
                self.complete(copies, 0 if in_order else self._random.randrange(len(copies)))


def staged(
    inner: LoopbackCommunicator, streams: FakeStreams | None = None, *, timeout_s: float = 20.0
) -> StagedCommunicator:
    """Stage everything, at random times that differ from rank to rank."""
    streams = FakeStreams(seed=inner.rank) if streams is None else streams
    return StagedCommunicator(inner, streams, timeout_s=timeout_s)


@dataclass
class FakeMark:
    """A moment of a `FakeClock`."""

    owner: FakeClock
    number: int

    def is_complete(self) -> bool:
        return self.number < self.owner.num_complete

    def seconds_after(self, earlier: FakeMark) -> float:
        assert self.is_complete() and earlier.is_complete(), "a time is read before it is there"
        return self.owner.times_s[self.number] - self.owner.times_s[earlier.number]


@dataclass
class FakeClock:
    """A device's clock: marks are complete, and have the times, that it is told.

    Attributes:
        times_s: Of each mark, in the order in which they were made.
        num_complete: How many of them the device has come past.
    """

    times_s: list[float] = field(default_factory=list)
    num_complete: int = 0
    num_marks: int = 0
    is_of_host: bool = False

    def mark(self) -> FakeMark:
        self.num_marks += 1
        return FakeMark(self, self.num_marks - 1)
