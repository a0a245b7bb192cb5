"""The loopback communicator: results by hand, and no rank left hanging."""

from __future__ import annotations

import threading

import pytest
import torch

from horovod_sylvie.comm.errors import CommunicationError, CommunicationTimeout
from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_operations_give_every_rank_its_result(size: int) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        own = torch.full((2, 3), float(comm.rank + 1))
        total = comm.allreduce(own, name="sum").wait()
        assert torch.equal(total, torch.full((2, 3), size * (size + 1) / 2))
        gathered = comm.allgather(own, name="gather").wait()
        expected = torch.arange(1.0, size + 1).repeat_interleave(2)[:, None].expand(-1, 3)
        assert torch.equal(gathered, expected)

    run_loopback(size, body)


def test_alltoall_moves_rows_by_the_split_table() -> None:
    # rows sent from rank (down) to rank (across); value = 10 * sender + receiver
    table = [[0, 2, 1], [3, 0, 0], [1, 1, 0]]

    def body(comm: LoopbackCommunicator) -> None:
        send = table[comm.rank]
        recv = [row[comm.rank] for row in table]
        rows = torch.tensor([10 * comm.rank + peer for peer in range(3) for _ in range(send[peer])])
        received = comm.alltoall(rows, send, recv, name="rows").wait()
        expected = [10 * peer + comm.rank for peer in range(3) for _ in range(recv[peer])]
        assert received.tolist() == expected

    run_loopback(3, body)


def test_operations_of_different_names_complete_in_any_order() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        names = ["a", "b", "c"]
        order = names if comm.rank else names[::-1]
        handles = {name: comm.allgather(torch.tensor([ord(name)]), name=name) for name in order}
        for name in sorted(handles, reverse=bool(comm.rank)):
            assert handles[name].wait().tolist() == [ord(name)] * 2

    run_loopback(2, body)


def test_reused_name_keeps_rounds_apart() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        for step in range(50):
            own = torch.tensor([100 * step + comm.rank])
            handle = comm.allgather(own, name="again")
            own.fill_(-1)  # what was submitted is what is sent
            assert handle.wait().tolist() == [100 * step + rank for rank in range(3)]

    run_loopback(3, body)


def test_poll_tells_whether_wait_returns_at_once() -> None:
    submitted = threading.Event()
    polled = threading.Event()

    def body(comm: LoopbackCommunicator) -> None:
        if comm.rank == 0:
            handle = comm.allreduce(torch.ones(1), name="x")
            assert not handle.poll()
            polled.set()
            assert submitted.wait(10)
            assert handle.poll()
        else:
            assert polled.wait(10)
            handle = comm.allreduce(torch.ones(1), name="x")
            submitted.set()
        handle.wait()
        assert handle.poll()

    run_loopback(2, body)


def test_rank_that_raises_makes_the_others_raise_its_reason() -> None:
    seen = {}

    def body(comm: LoopbackCommunicator) -> None:
        if comm.rank == 1:
            raise KeyError("lost")
        try:
            comm.allreduce(torch.ones(1), name="x").wait()
        except CommunicationError as error:
            seen[comm.rank] = str(error)
            raise

    with pytest.raises(KeyError, match="lost"):
        run_loopback(3, body)
    assert seen.keys() == {0, 2}
    for rank, text in seen.items():
        assert text == f"rank {rank}: 'x' cannot be completed: rank 1 raised KeyError: 'lost'."


def test_rank_that_returns_early_makes_the_others_raise() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        if comm.rank == 0:
            comm.allgather(torch.ones(1), name="x").wait()

    with pytest.raises(CommunicationError, match="'x' cannot be completed: rank 1 returned"):
        run_loopback(2, body)


def test_rank_that_never_arrives_ends_the_wait_at_its_deadline() -> None:
    gone = threading.Event()

    def body(comm: LoopbackCommunicator) -> None:
        if comm.rank == 1:
            assert gone.wait(30)
            return
        try:
            comm.allreduce(torch.ones(1), name="x").wait()
        finally:
            gone.set()

    with pytest.raises(CommunicationTimeout, match=r"'x' was not completed within 0\.2 s; not sub"):
        run_loopback(2, body, timeout_s=0.2)


def test_handle_waited_on_twice_raises() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        handle = comm.allreduce(torch.ones(1), name="x")
        handle.wait()
        handle.wait()

    with pytest.raises(RuntimeError, match="'x' was waited on before"):
        run_loopback(1, body)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_allreduce_in_place_scales_before_and_after_the_sum(dtype: torch.dtype) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        own = torch.full((2, 3), float(comm.rank + 1), dtype=dtype)
        handle = comm.allreduce_(own, name="sum", prescale=0.5, postscale=4.0)
        result = handle.wait()
        assert result.data_ptr() == own.data_ptr()
        assert own.flatten().tolist() == [12.0] * 6

    run_loopback(3, body)


def test_allreduce_in_place_of_a_parameter_leaves_the_graph_alone() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        weight = torch.ones(3, requires_grad=True)
        comm.allreduce_(weight.detach(), name="sum").wait()
        assert weight.tolist() == [2.0, 2.0, 2.0]
        assert weight.grad_fn is None

    run_loopback(2, body)


def test_allreduce_in_place_beside_one_that_is_not_raises_on_all_ranks() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        submit = comm.allreduce if comm.rank else comm.allreduce_
        with pytest.raises(
            CommunicationError, match="submitted allreduce_ of .* submitted allredu"
        ):
            submit(torch.ones(1), name="x").wait()

    run_loopback(2, body)


@pytest.mark.parametrize(
    ("tensor", "error", "text"),
    [
        (torch.ones(2, dtype=torch.bfloat16), TypeError, "allreduce_: expected one of"),
        (torch.ones(2, 3).T, ValueError, "allreduce_: expected a contiguous 'tensor'"),
        (torch.tensor(1.0), ValueError, "allreduce_: expected at least one dimension"),
    ],
)
def test_allreduce_in_place_of_what_cannot_be_sent_raises(
    tensor: torch.Tensor, error: type[Exception], text: str
) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        with pytest.raises(error, match=text):
            comm.allreduce_(tensor, name="x")

    run_loopback(2, body)


def test_ranks_of_threads_never_change() -> None:
    assert run_loopback(2, lambda comm: comm.ranks_changed()) == [False, False]


@pytest.mark.parametrize(
    ("own", "text"),
    [
        (lambda rank: torch.ones(rank + 1), r"rank 0 submitted allreduce of torch.float32 \(1,\)"),
        (lambda rank: torch.ones(1, dtype=[torch.float32, torch.float64][rank]), "torch.float64"),
    ],
)
def test_ranks_that_differ_in_shape_or_dtype_all_raise(own, text: str) -> None:
    raised = []

    def body(comm: LoopbackCommunicator) -> None:
        with pytest.raises(CommunicationError, match=text):
            comm.allreduce(own(comm.rank), name="x").wait()
        raised.append(comm.rank)

    run_loopback(2, body)
    assert sorted(raised) == [0, 1]


def test_alltoall_splits_that_do_not_match_the_peers_raise_on_all_ranks() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        recv = [1, 1] if comm.rank == 0 else [1, 2]
        with pytest.raises(CommunicationError, match="rank 1 sends 1 rows to rank 1, which exp"):
            comm.alltoall(torch.ones(2), [1, 1], recv, name="x").wait()

    run_loopback(2, body)


def test_run_loopback_without_ranks_raises() -> None:
    with pytest.raises(ValueError, match="expected a positive number of ranks for 'size', got 0"):
        run_loopback(0, lambda comm: None)
