"""The delayed communicator: late at random, and never wrong."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from horovod_sylvie.comm import delayed
from horovod_sylvie.comm.checked import CheckedCommunicator
from horovod_sylvie.comm.delayed import DelayedCommunicator
from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from horovod_sylvie.comm.protocol import Communicator
from tests.gradient.training import COMPRESSIONS, trained


def on_delayed(
    size: int, body: Callable[[DelayedCommunicator], Any], *, longest_s: float = 0.0, **options: Any
) -> list[Any]:
    options = {"seed": 0, "longest_s": longest_s} | options
    return run_loopback(size, lambda comm: body(DelayedCommunicator(comm, **options)))


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record sleeps instead of taking them."""
    recorded: list[float] = []
    monkeypatch.setattr(delayed, "time", SimpleNamespace(sleep=recorded.append))
    return recorded


def use_everything(comm: Any) -> list[Tensor]:
    own = torch.arange(3.0) + 10 * comm.rank
    handles = [
        comm.allreduce(own, name="a"),
        comm.allreduce_(own.clone(), name="b", prescale=0.5, postscale=3.0),
        comm.allgather(own, name="c"),
        comm.alltoall(own, [1, 2], 2 * [1 + comm.rank], name="d"),
    ]
    assert [handle.name for handle in handles] == ["a", "b", "c", "d"]
    return [handle.wait() for handle in handles]


def test_operations_give_what_the_inner_ones_give() -> None:
    plain = run_loopback(2, use_everything)
    late = on_delayed(2, use_everything, longest_s=0.01, share=1.0)
    for mine, theirs in zip(late, plain, strict=True):
        assert all(torch.equal(*pair) for pair in zip(mine, theirs, strict=True))


def test_communicator_keeps_to_the_protocol() -> None:
    def body(comm: DelayedCommunicator) -> tuple[int, int, bool]:
        assert isinstance(comm, Communicator)
        return comm.rank, comm.size, comm.ranks_changed()

    assert on_delayed(2, body) == [(0, 2, False), (1, 2, False)]


def test_submissions_and_waits_are_delayed_and_polls_are_not(sleeps: list[float]) -> None:
    def body(comm: DelayedCommunicator) -> list[int]:
        handle = comm.allreduce(torch.ones(1), name="x")
        seen = [comm.num_delays]
        assert handle.poll()
        seen.append(comm.num_delays)
        handle.wait()
        return [*seen, comm.num_delays]

    assert on_delayed(1, body, longest_s=0.5, share=1.0) == [[1, 1, 2]]
    assert len(sleeps) == 2 and all(0 <= each <= 0.5 for each in sleeps)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.3, 1.0])
def test_share_of_the_calls_is_delayed(share: float, sleeps: list[float]) -> None:
    def body(comm: DelayedCommunicator) -> int:
        for _ in range(500):
            comm.allreduce(torch.ones(1), name="x").wait()
        return comm.num_delays

    (num_delays,) = on_delayed(1, body, longest_s=2.0, share=share)
    deviation = (1000 * share * (1 - share)) ** 0.5
    assert abs(num_delays - 1000 * share) <= 4 * deviation
    assert len(sleeps) == num_delays
    if num_delays:
        assert 0 <= min(sleeps) < 0.2 and 1.8 < max(sleeps) <= 2.0
        assert sum(sleeps) / num_delays == pytest.approx(1.0, abs=0.2)


def delays_of(rank: int, seed: int, sleeps: list[float]) -> list[float]:
    """Return the delays of one rank's calls, where the other rank is never late."""
    sleeps.clear()

    def body(comm: LoopbackCommunicator) -> None:
        own = DelayedCommunicator(comm, seed=seed, longest_s=1.0, share=float(comm.rank == rank))
        for _ in range(5):
            own.allreduce(torch.ones(1), name="x").wait()

    run_loopback(2, body)
    return list(sleeps)


def test_delays_depend_on_seed_and_rank_only(sleeps: list[float]) -> None:
    first, other_rank, other_seed = (
        delays_of(rank, seed, sleeps) for rank, seed in ((0, 0), (1, 0), (0, 1))
    )
    assert first == delays_of(0, 0, sleeps)
    assert len({*first, *other_rank, *other_seed}) == 30


@pytest.mark.parametrize("compression", ["none", "topk"])
def test_delays_change_no_result_of_training(compression: str) -> None:
    policy = COMPRESSIONS[compression]

    def late(comm: LoopbackCommunicator) -> tuple[Tensor, int]:
        own = DelayedCommunicator(comm, seed=1, longest_s=0.01)
        with CheckedCommunicator(own) as checked:
            weights = trained(checked, steps=range(4), compression=policy)
        return weights, own.num_delays

    plain = run_loopback(3, lambda comm: trained(comm, steps=range(4), compression=policy))
    for (weights, num_delays), expected in zip(run_loopback(3, late), plain, strict=True):
        assert torch.equal(weights, expected)
        assert num_delays > 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"longest_s": -1.0}, "expected a finite number of seconds from 0 for 'longest_s', got -1"),
        ({"longest_s": float("nan")}, "for 'longest_s', got nan"),
        ({"longest_s": float("inf")}, "for 'longest_s', got inf"),
        ({"share": 1.5}, "expected a number from 0 to 1 for 'share', got 1.5"),
        ({"share": -0.1}, "for 'share', got -0.1"),
    ],
)
def test_option_out_of_its_range_is_refused(options: dict[str, float], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        on_delayed(1, lambda comm: None, **options)
