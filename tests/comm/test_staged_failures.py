"""The staged communicator where something is wrong: who learns of it, and in which call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from horovod_sylvie.comm.errors import CommunicationError, CommunicationTimeout
from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from horovod_sylvie.comm.passing import PassingCommunicator
from horovod_sylvie.comm.protocol import Handle
from horovod_sylvie.comm.staged import StagedCommunicator
from tests.device.fake_streams import FakeStreams, staged


def test_copy_that_never_ends_is_an_error_that_says_so() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        streams = FakeStreams()
        own = staged(comm, streams, timeout_s=0.05)
        late = own.allgather(torch.ones(1), name="late")
        own.allreduce(torch.ones(1), name="later")
        with pytest.raises(CommunicationTimeout) as caught:
            late.wait()
        assert str(caught.value) == (
            "rank 0 of 1: 'late' was not submitted: its tensor was not copied to the host within "
            "0.05 s. Being copied here: 'late' (allgather), 'later' (allreduce). The kernels that "
            "come before it on the device have not ended; look for one that hangs. A longer "
            "deadline: HorovodCommunicator(timeout_s=...) or HVS_TIMEOUT_S."
        )
        with pytest.raises(ValueError, match="not in flight for 'name', got 'late'"):
            own.allgather(torch.ones(1), name="late")

    run_loopback(1, body)


def test_copies_that_never_end_do_not_hold_up_the_deadline_of_another_operation() -> None:
    over = threading.Event()

    def body(comm: LoopbackCommunicator) -> None:
        if comm.rank == 1:
            over.wait(10.0)
            return
        streams = FakeStreams(is_held=lambda tensor: tensor.is_floating_point())
        own = staged(comm, streams, timeout_s=0.05)
        alone = own.allreduce(torch.ones(1), name="alone")
        streams.complete(streams.outgoing)
        own.allreduce(torch.ones(1), name="stuck")
        host = own.allreduce(torch.ones(1, dtype=torch.int64), name="host")
        with pytest.raises(CommunicationTimeout, match="'alone' was not completed within 0.2 s"):
            alone.wait()
        with pytest.raises(CommunicationError, match="'host' is given up"):
            host.wait()
        over.set()

    run_loopback(2, body, timeout_s=0.2)


@pytest.mark.parametrize("is_copied", [True, False])
def test_peer_that_fails_is_named(is_copied: bool) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        if comm.rank == 1:
            raise ZeroDivisionError("one rank divides by zero")
        streams = FakeStreams(seed=0) if not is_copied else FakeStreams()
        own = staged(comm, streams)
        handle = own.allreduce(torch.ones(1), name="x")
        streams.complete_all() if is_copied else None
        with pytest.raises(CommunicationError, match="rank 1 raised ZeroDivisionError: one rank"):
            handle.wait()

    with pytest.raises(ZeroDivisionError):
        run_loopback(2, body)


class Refusing(PassingCommunicator):
    """Refuses every operation of one name."""

    def _submit(
        self, kind: str, tensor: Tensor, name: str, start: Callable[[Tensor], Handle]
    ) -> Handle:
        if name == "refused":
            raise CommunicationError("communication failed before")
        return start(tensor)


def test_refusal_is_raised_where_it_belongs_and_in_no_other_call() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        streams = FakeStreams()
        own = StagedCommunicator(Refusing(comm), streams, timeout_s=20.0)
        refused = own.allreduce(torch.ones(1), name="refused")
        streams.complete_all()
        other = own.allreduce(torch.ones(1), name="other")  # hands the first one over
        streams.complete_all()
        assert other.wait().item() == 1.0
        assert refused.poll()
        with pytest.raises(CommunicationError, match="communication failed before"):
            refused.wait()
        own.allreduce(torch.ones(1), name="refused")  # its name is free again

    run_loopback(1, body)


def on_ones(comm: Any, kind: str, **changes: Any) -> Any:
    arguments: dict[str, Any] = {"tensor": torch.ones(2, 3), "name": "x"}
    if kind == "alltoall":
        arguments |= {"send_splits": [2], "recv_splits": [2]}
    return getattr(comm, kind)(**(arguments | changes))


@pytest.mark.parametrize(
    ("kind", "changes", "error", "text"),
    [
        ("allreduce", {"name": ""}, ValueError, "expected a non-empty string for 'name'"),
        ("allreduce_", {"tensor": torch.ones(2, 3).T}, ValueError, "contiguous"),
        ("allreduce", {"tensor": torch.ones(2, dtype=torch.uint8)}, TypeError, "expected one of"),
        ("allgather", {"tensor": torch.ones(2, dtype=torch.bfloat16)}, TypeError, "expected one"),
        ("allgather", {"tensor": torch.ones(())}, ValueError, "at least one dimension"),
        ("alltoall", {"send_splits": [-1]}, ValueError, r"'send_splits\[0\]', got -1"),
        ("alltoall", {"send_splits": [1]}, ValueError, "add up to the rows"),
        ("alltoall", {"recv_splits": [1, 1]}, ValueError, "one entry per rank"),
    ],
)
def test_mistake_of_the_caller_is_an_error_of_the_call(
    kind: str, changes: dict[str, Any], error: type[Exception], text: str
) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        streams = FakeStreams()
        own = staged(comm, streams)
        with pytest.raises(error, match=text):
            on_ones(own, kind, **changes)
        assert streams.outgoing == []

    run_loopback(1, body)


def test_too_large_a_result_is_refused_before_anything_is_copied() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        streams = FakeStreams()
        huge = torch.empty(2**31, dtype=torch.uint8, device="meta")
        with pytest.raises(ValueError, match="expected a result of at most 2147483647 bytes"):
            staged(comm, streams).allgather(huge, name="x")
        assert streams.num_allocated == 0

    run_loopback(1, body)


def test_name_in_flight_and_second_wait_are_refused() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        streams = FakeStreams(is_held=lambda tensor: tensor.is_floating_point())
        own = staged(comm, streams)
        handle = own.allreduce(torch.ones(1), name="x")
        for again in (torch.ones(1), torch.ones(1, dtype=torch.int64)):
            with pytest.raises(ValueError, match="not in flight for 'name', got 'x'"):
                own.allreduce(again, name="x")
        streams.complete_all()
        handle.wait()
        with pytest.raises(RuntimeError, match="'x' was waited on before"):
            handle.wait()
        own.allreduce(torch.ones(1), name="x")

    run_loopback(1, body)


def test_splits_are_those_of_the_call() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        streams = FakeStreams()
        splits = [2]
        handle = staged(comm, streams).alltoall(torch.ones(2), splits, splits, name="x")
        splits[0] = 7
        streams.complete_all()
        assert handle.wait().tolist() == [1.0, 1.0]

    run_loopback(1, body)
