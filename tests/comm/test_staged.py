"""The staged communicator: nothing too early, nothing twice, nobody blocked, on a fake device."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from horovod_sylvie.comm.passing import PassingCommunicator, PassingHandle
from horovod_sylvie.comm.protocol import Communicator, Handle
from horovod_sylvie.comm.staged import StagedCommunicator
from tests.device.fake_streams import FakeStreams, bytes_of, staged

KINDS = ("allreduce", "allreduce_", "allgather", "alltoall")


def submit(comm: Any, kind: str, own: Tensor, name: str) -> Handle:
    """Start an operation; `own` has a multiple of P rows, of which each rank gets as many."""
    if kind == "alltoall":
        share = [len(own) // comm.size] * comm.size
        handle: Handle = comm.alltoall(own, share, share, name=name)
        return handle
    if kind == "allreduce_":
        in_place: Handle = comm.allreduce_(own, name=name, prescale=0.5, postscale=3.0)
        return in_place
    other: Handle = getattr(comm, kind)(own, name=name)
    return other


def rows_of(rank: int, number: int, size: int) -> Tensor:
    """Return rows that tell where they are from. [2 P, number + 1]."""
    return torch.arange(2.0 * size * (number + 1)).view(2 * size, -1) + 1000 * rank + 100 * number


class Guard(PassingCommunicator):
    """Sees what reaches the host's side: complete copies only, that stay as they are."""

    def __init__(self, inner: LoopbackCommunicator, streams: FakeStreams) -> None:
        super().__init__(inner)
        self.streams = streams
        self.submitted: list[tuple[str, Tensor]] = []

    def _submit(
        self, kind: str, tensor: Tensor, name: str, start: Callable[[Tensor], Handle]
    ) -> Handle:
        assert not self.streams.is_copying_to(tensor), f"'{name}' was submitted too early"
        self.submitted.append((name, tensor))
        return GuardHandle(start(tensor), tensor, in_place=kind == "allreduce_")


class GuardHandle(PassingHandle):
    def __init__(self, inner: Handle, sent: Tensor, *, in_place: bool) -> None:
        super().__init__(inner)
        self._sent, self._before, self._in_place = sent, bytes_of(sent), in_place

    def wait(self) -> Tensor:
        assert bytes_of(self._sent) == self._before, f"'{self.name}' was overwritten in flight"
        result = super().wait()
        assert self._in_place or bytes_of(self._sent) == self._before
        return result


def guarded(comm: LoopbackCommunicator, streams: FakeStreams) -> StagedCommunicator:
    return StagedCommunicator(Guard(comm, streams), streams, timeout_s=20.0)


def all_rounds(comm: Any, orders: Sequence[Sequence[int]], num_kinds: int) -> list[Tensor]:
    """Start operations in this rank's order, and wait for them in another one, round by round."""
    results = []
    for order in orders:
        handles = {
            number: submit(
                comm, KINDS[number % num_kinds], rows_of(comm.rank, number, comm.size), f"x{number}"
            )
            for number in order
        }
        waited = {number: handles[number].wait().clone() for number in reversed(order)}
        results += [waited[number] for number in sorted(waited)]
    return results


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("in_order", [True, False])
def test_operations_in_any_order_give_what_the_inner_ones_give(size: int, in_order: bool) -> None:
    def orders(rank: int) -> list[list[int]]:
        generator = random.Random(rank)
        return [generator.sample(range(12), 12) for _ in range(4)]

    def body(comm: LoopbackCommunicator) -> tuple[list[Tensor], FakeStreams]:
        streams = FakeStreams(seed=comm.rank, in_order=in_order)
        results = all_rounds(guarded(comm, streams), orders(comm.rank), len(KINDS))
        streams.complete_all()
        return results, streams

    plain = run_loopback(size, lambda comm: all_rounds(comm, orders(comm.rank), len(KINDS)))
    for (mine, streams), theirs in zip(run_loopback(size, body), plain, strict=True):
        assert all(torch.equal(*pair) for pair in zip(mine, theirs, strict=True))
        assert streams.faults == []
        # 12 on their way at once, and as many results that the device may still be reading
        assert streams.num_allocated <= 24


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_without_rows_are_staged_too(kind: str) -> None:
    def body(comm: Any) -> Tensor:
        return submit(comm, kind, torch.empty(0, 3), "x").wait()

    plain = run_loopback(2, body)
    mine = run_loopback(2, lambda comm: body(staged(comm)))
    assert [tuple(each.shape) for each in mine] == [tuple(each.shape) for each in plain]


def test_result_of_a_sum_in_place_is_where_the_tensor_is() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        own = torch.full((3,), float(comm.rank + 1), requires_grad=True)
        result = staged(comm).allreduce_(own, name="x", postscale=2.0).wait()
        assert result.data_ptr() == own.data_ptr()
        assert own.tolist() == [6.0] * 3

    run_loopback(2, body)


def test_submission_neither_waits_for_the_copy_nor_hands_it_over_before() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        streams = FakeStreams()
        guard = Guard(comm, streams)
        own = StagedCommunicator(guard, streams, timeout_s=20.0)
        assert isinstance(own, Communicator)
        assert (own.rank, own.size, own.ranks_changed()) == (0, 1, False)
        first = own.allgather(torch.ones(2), name="first")
        second = own.allgather(torch.ones(2), name="second")
        assert not first.poll() and not second.poll() and guard.submitted == []
        streams.complete(streams.outgoing)
        third = own.allgather(torch.ones(2), name="third")  # any later call hands it over
        assert [name for name, _ in guard.submitted] == ["first"]
        streams.complete(streams.outgoing)
        assert not third.poll()
        assert [name for name, _ in guard.submitted] == ["first", "second"]
        assert first.poll() and second.poll()
        streams.complete(streams.outgoing)
        assert [each.wait().tolist() for each in (third, first, second)] == [[1.0, 1.0]] * 3
        assert [each.name for each in (first, second, third)] == ["first", "second", "third"]
        assert first.poll()

    run_loopback(1, body)


def test_buffer_is_used_again_once_the_device_has_read_it_and_not_before() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        streams = FakeStreams()
        own = guarded(comm, streams)

        def exchange(value: float) -> None:
            handle = own.allreduce_(torch.full((8,), value), name="x")
            streams.complete(streams.outgoing)
            assert handle.wait().tolist() == [value] * 8

        exchange(1.0)
        assert (len(streams.incoming), streams.num_allocated) == (1, 1)
        exchange(2.0)  # the first one's result may not have been read yet
        assert (len(streams.incoming), streams.num_allocated) == (2, 2)
        streams.complete(streams.incoming)
        exchange(3.0)
        assert streams.num_allocated == 2
        streams.complete_all()
        assert streams.faults == []

    run_loopback(1, body)


def test_host_tensors_pass_as_they_are_and_drive_what_is_being_copied() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        streams = FakeStreams(is_held=lambda tensor: tensor.is_floating_point())
        guard = Guard(comm, streams)
        own = StagedCommunicator(guard, streams, timeout_s=20.0)
        copied = own.allgather(torch.ones(2), name="copied")
        plain = torch.ones(2, dtype=torch.int64)
        handle = own.allgather(plain, name="plain")
        assert guard.submitted[0][1] is plain and handle.name == "plain" and handle.poll()
        streams.complete(streams.outgoing)
        assert handle.wait().tolist() == [1, 1]
        assert [name for name, _ in guard.submitted] == ["plain", "copied"]
        assert copied.wait().tolist() == [1.0, 1.0]

    run_loopback(1, body)


def test_ranks_that_wait_for_each_other_s_copies_both_go_on() -> None:
    def body(comm: LoopbackCommunicator) -> list[float]:
        own = staged(comm, FakeStreams(seed=comm.rank, chance=0.02))
        names = ["a", "b"] if comm.rank else ["b", "a"]
        handles = {name: own.allreduce_(torch.ones(1), name=name) for name in names}
        host = own.allreduce_(torch.ones(1), name="c")
        return [each.wait().item() for each in (handles[names[1]], host, handles[names[0]])]

    assert run_loopback(2, body) == [[2.0] * 3] * 2


def test_leaving_hands_over_what_is_being_copied() -> None:
    def body(comm: LoopbackCommunicator) -> float | None:
        streams = FakeStreams(seed=1)
        own = staged(comm, streams)
        handle = own.allreduce_(torch.ones(1), name="x")
        if comm.rank == 1:
            own.leave()
            assert streams.outgoing == []
            return None
        return handle.wait().item()

    assert run_loopback(2, body) == [2.0, None]
