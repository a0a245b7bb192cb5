"""The checked communicator: nothing is waited on twice or never, and it says where."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import horovod_sylvie.comm
from horovod_sylvie.comm.agreement import gather_bytes
from horovod_sylvie.comm.checked import CheckedCommunicator, CheckedHandle
from horovod_sylvie.comm.errors import CommunicationError
from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from horovod_sylvie.comm.protocol import Communicator
from tests.gradient.training import COMPRESSIONS, trained

HERE = re.escape(__file__)
SUBMIT: dict[str, Callable[[Any, Tensor], Any]] = {
    "allreduce": lambda comm, own: comm.allreduce(own, name="x"),
    "allreduce_": lambda comm, own: comm.allreduce_(own, name="x", prescale=0.5, postscale=3.0),
    "allgather": lambda comm, own: comm.allgather(own, name="x"),
    # Each of two ranks sends one row to rank 0 and two to rank 1
    "alltoall": lambda comm, own: comm.alltoall(own, [1, 2], 2 * [1 + comm.rank], name="x"),
}


def on_checked(size: int, body: Callable[[CheckedCommunicator], Any]) -> list[Any]:
    return run_loopback(size, lambda comm: body(CheckedCommunicator(comm)), timeout_s=20.0)


@pytest.mark.parametrize("kind", SUBMIT)
def test_operation_gives_what_the_inner_one_gives(kind: str) -> None:
    def body(comm: LoopbackCommunicator | CheckedCommunicator) -> Tensor:
        return SUBMIT[kind](comm, torch.arange(3.0) + 10 * comm.rank).wait()

    plain = run_loopback(2, body)
    for mine, theirs in zip(on_checked(2, body), plain, strict=True):
        assert torch.equal(mine, theirs)


def test_communicator_keeps_to_the_protocol() -> None:
    def body(comm: CheckedCommunicator) -> tuple[int, int, bool]:
        assert isinstance(comm, Communicator)
        handle = comm.allreduce(torch.ones(1), name="x")
        assert handle.name == "x"
        handle.wait()
        assert handle.poll()
        return comm.rank, comm.size, comm.ranks_changed()

    assert on_checked(2, body) == [(0, 2, False), (1, 2, False)]


@pytest.mark.parametrize("kind", SUBMIT)
def test_second_wait_raises_and_names_operation_and_places(kind: str) -> None:
    def body(comm: CheckedCommunicator) -> None:
        handle = SUBMIT[kind](comm, torch.ones(3))
        handle.wait()
        text = (
            rf"wait: the handle of 'x' \({kind}\), submitted at {HERE}:\d+, was waited on before, "
            rf"at {HERE}:\d+. Wait for each handle once."
        )
        with pytest.raises(RuntimeError, match=text):
            handle.wait()

    on_checked(2, body)


def test_second_wait_that_was_caught_is_told_at_the_end() -> None:
    def body(comm: CheckedCommunicator) -> None:
        handle = comm.allreduce(torch.ones(1), name="x")
        handle.wait()
        with pytest.raises(RuntimeError, match="was waited on before"):
            handle.wait()
        with pytest.raises(RuntimeError, match=rf"before, at {HERE}:\d+, and again at {HERE}:\d+"):
            comm.check_complete()

    on_checked(1, body)


def test_operations_never_waited_on_are_listed_with_the_line_that_submitted_them() -> None:
    def body(comm: CheckedCommunicator) -> None:
        comm.allgather(torch.ones(1), name="waited").wait()
        line = sys._getframe().f_lineno
        comm.allreduce(torch.ones(1), name="lost")
        comm.allgather(torch.ones(1), name="gone")
        with pytest.raises(RuntimeError) as caught:
            comm.check_complete()
        assert str(caught.value) == (
            f"check_complete: rank {comm.rank}: expected each of 3 operations to be waited on "
            "once, got 2 that were not: "
            f"'lost' (allreduce), submitted at {__file__}:{line + 1}, was never waited on; "
            f"'gone' (allgather), submitted at {__file__}:{line + 2}, was never waited on. "
            "Wait for each handle exactly once."
        )

    on_checked(2, body)


def test_place_is_that_of_the_caller_of_this_package_s_own_steps() -> None:
    # As if a module of horovod_sylvie/comm/ submitted, and forgot the handle
    folder = Path(horovod_sylvie.comm.__file__).parent
    source = "def step(comm, own): comm.allreduce(own, name='x')"
    scope: dict[str, Any] = {}
    exec(compile(source, str(folder / "imagined.py"), "exec"), scope)

    def body(comm: CheckedCommunicator) -> None:
        scope["step"](comm, torch.ones(1))
        with pytest.raises(RuntimeError, match=rf"\(allreduce\), submitted at {HERE}:\d+, was nev"):
            comm.check_complete()

    on_checked(1, body)


def test_name_in_flight_is_refused_until_it_was_waited_on() -> None:
    def body(comm: CheckedCommunicator) -> None:
        handle = comm.allreduce(torch.ones(1), name="x")
        text = (
            "allgather: expected a name that is not in flight for 'name', got 'x', which was "
            rf"submitted at {HERE}:\d+. Wait for the earlier operation first."
        )
        with pytest.raises(ValueError, match=text):
            comm.allgather(torch.ones(1), name="x")
        handle.wait()
        comm.allgather(torch.ones(1), name="x").wait()
        comm.check_complete()
        assert comm.submissions == (("allreduce", "x"), ("allgather", "x"))

    on_checked(2, body)


def test_operation_that_was_refused_was_not_submitted() -> None:
    def body(comm: CheckedCommunicator) -> None:
        with pytest.raises(ValueError, match="expected at least one dimension"):
            comm.allreduce(torch.tensor(1.0), name="x")
        comm.check_complete()
        assert comm.submissions == ()
        comm.allreduce(torch.ones(1), name="x").wait()  # its name is free

    on_checked(2, body)


def test_wait_that_failed_is_over() -> None:
    ended = []

    def body(comm: CheckedCommunicator) -> None:
        if comm.rank == 1:
            raise KeyError("lost")
        with pytest.raises(CommunicationError, match="rank 1 raised KeyError"):
            comm.allreduce(torch.ones(1), name="x").wait()
        comm.check_complete()
        ended.append(comm.rank)

    with pytest.raises(KeyError, match="lost"):
        on_checked(2, body)
    assert ended == [0]


def test_submissions_are_in_order_and_their_numbers_compare_between_ranks() -> None:
    def body(comm: CheckedCommunicator) -> tuple[Any, Any]:
        names = "ab" if comm.rank else "ba"
        for handle in [comm.allgather(torch.ones(1), name=name) for name in names]:
            handle.wait()
        comm.allgather(torch.ones(1), name="b").wait()
        gather_bytes(comm, b"12", name="c")
        return comm.submissions, comm.num_submitted

    (first, first_numbers), (second, second_numbers) = on_checked(2, body)
    ends = (("allgather", "c.length"), ("allgather", "c.bytes"))
    assert first == (*(("allgather", name) for name in "bab"), *ends)
    assert second == (*(("allgather", name) for name in "abb"), *ends)
    assert first_numbers == second_numbers == {**dict.fromkeys(first, 1), ("allgather", "b"): 2}


def raise_after(handle: CheckedHandle) -> None:
    raise KeyError(f"reason to leave {handle.name}")


def test_leaving_the_block_checks_unless_it_raised() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        with CheckedCommunicator(comm) as checked:
            checked.allreduce(torch.ones(1), name="fine").wait()
        with (
            pytest.raises(RuntimeError, match="'lost' .* was never waited on"),
            CheckedCommunicator(comm) as checked,
        ):
            checked.allreduce(torch.ones(1), name="lost")
        with pytest.raises(KeyError, match="reason"), CheckedCommunicator(comm) as checked:
            raise_after(checked.allreduce(torch.ones(1), name="left behind"))

    run_loopback(2, body)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_training_waits_once_for_every_exchange(compression: str) -> None:
    def body(comm: LoopbackCommunicator) -> Any:
        with CheckedCommunicator(comm) as checked:
            trained(checked, steps=range(3), compression=COMPRESSIONS[compression])
        return checked.num_submitted

    numbers = run_loopback(2, body)
    assert numbers[0] == numbers[1]
    assert sum(numbers[0].values()) > 3
