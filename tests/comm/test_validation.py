"""What one rank alone would reject is rejected before anything is submitted."""

from __future__ import annotations

import re

import pytest
import torch

from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback


def submit_alone(operation) -> None:
    """Run an operation that must be rejected at once: nobody else will ever arrive."""
    run_loopback(1, operation)


@pytest.mark.parametrize("name", ["", None, 3])
def test_name_that_is_no_string_raises(name) -> None:
    with pytest.raises(ValueError, match="allreduce: expected a non-empty string for 'name', got"):
        submit_alone(lambda comm: comm.allreduce(torch.ones(1), name=name))


@pytest.mark.parametrize(
    ("tensor", "error", "text"),
    [
        ([1.0], TypeError, "expected a torch.Tensor for 'tensor', got list"),
        (torch.tensor(1.0), ValueError, "expected at least one dimension for 'tensor', got a sca"),
        (torch.ones(2, 3).T, ValueError, "expected a contiguous 'tensor', got strides (1, 3)"),
        (torch.ones(2, dtype=torch.bfloat16), TypeError, "got torch.bfloat16. Convert it, or send"),
        (torch.ones(2, dtype=torch.bool), TypeError, "got torch.bool"),
    ],
)
@pytest.mark.parametrize("operation", ["allreduce", "allgather", "alltoall"])
def test_tensor_that_cannot_be_sent_raises(operation: str, tensor, error, text: str) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        splits = ([1], [1]) if operation == "alltoall" else ()
        getattr(comm, operation)(tensor, *splits, name="x")

    with pytest.raises(error, match=re.escape(f"{operation}: ") + ".*" + re.escape(text)):
        submit_alone(body)


def test_bytes_are_moved_but_not_reduced() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        raw = torch.ones(2, dtype=torch.uint8)
        assert comm.allgather(raw, name="x").wait().tolist() == [1, 1]
        with pytest.raises(TypeError, match="allreduce: .*got torch.uint8"):
            comm.allreduce(raw, name="y")

    submit_alone(body)


@pytest.mark.parametrize(
    ("send", "recv", "text"),
    [
        ([2, 0], [2], "expected one entry per rank (1) for 'send_splits', got 2 entries"),
        ([1], [2], "'send_splits' to add up to the rows of 'tensor' (2), got 1"),
        ([-2], [2], "expected a number of rows from 0 to 2147483647 for 'send_splits[0]', got -2"),
        ([2], [-1], "for 'recv_splits[0]', got -1"),
        ([2], [2**31], "for 'recv_splits[0]', got 2147483648"),
        ([2], [], "expected one entry per rank (1) for 'recv_splits', got 0 entries"),
    ],
)
def test_splits_that_do_not_fit_raise(send, recv, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        submit_alone(lambda comm: comm.alltoall(torch.ones(2), send, recv, name="x"))


def test_name_that_is_in_flight_raises() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        handle = comm.allreduce(torch.ones(1), name="x")
        with pytest.raises(ValueError, match="allgather: expected a name that is not in flight"):
            comm.allgather(torch.ones(1), name="x")
        handle.wait()
        comm.allgather(torch.ones(1), name="x").wait()

    submit_alone(body)
