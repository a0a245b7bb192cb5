"""Steps that all ranks do together, or refuse together."""

from __future__ import annotations

import pytest

from horovod_sylvie.comm.agreement import gather_bytes, require_agreement, together
from horovod_sylvie.comm.errors import PeerError
from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_gather_bytes_of_any_lengths_returns_them_by_rank(size: int) -> None:
    for payload in (lambda rank: b"", lambda rank: b"\0x" * rank, lambda rank: bytes(range(256))):
        gathered = run_loopback(
            size, lambda comm, payload=payload: gather_bytes(comm, payload(comm.rank), name="x")
        )
        assert gathered == [[payload(rank) for rank in range(size)]] * size


def test_agreement_on_equal_values_passes() -> None:
    run_loopback(3, lambda comm: require_agreement(comm, "colour", "blue", advice="Paint."))


def test_agreement_on_different_values_raises_on_every_rank_and_lists_them() -> None:
    texts = []

    def body(comm: LoopbackCommunicator) -> None:
        with pytest.raises(PeerError) as caught:
            require_agreement(comm, "colour", ["blue", "red"][comm.rank], advice="Paint one.")
        texts.append(str(caught.value))

    run_loopback(2, body)
    assert sorted(texts) == [
        f"rank {rank}: the ranks differ in colour (rank 0: blue; rank 1: red). Paint one."
        for rank in range(2)
    ]


def test_together_raises_on_every_rank_when_one_fails() -> None:
    outcomes = {}

    def body(comm: LoopbackCommunicator) -> None:
        try:
            with together(comm, "reading"):
                if comm.rank == 2:
                    raise FileNotFoundError("no rank-00002")
        except (FileNotFoundError, PeerError) as error:
            outcomes[comm.rank] = error

    run_loopback(3, body)
    assert isinstance(outcomes[2], FileNotFoundError)
    for rank in (0, 1):
        assert str(outcomes[rank]) == (
            f"rank {rank}: reading failed on rank 2: FileNotFoundError: no rank-00002"
        )


def test_together_without_failure_does_nothing() -> None:
    def body(comm: LoopbackCommunicator) -> int:
        with together(comm, "reading"):
            value = comm.rank
        return value

    assert run_loopback(3, body) == [0, 1, 2]


def test_together_interrupted_does_not_wait_for_the_others() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        with together(comm, "reading"):
            if comm.rank == 0:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_loopback(2, body)
