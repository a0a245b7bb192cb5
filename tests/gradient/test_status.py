"""What ranks tell each other about a step, and where they differ."""

from __future__ import annotations

import pytest
import torch

from horovod_sylvie.comm.errors import PeerError
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.gradient.status import (
    DENSE_GRADIENT,
    NO_GRADIENT,
    SPARSE_GRADIENT,
    agree_on_plan,
    exchange_status,
)
from tests.gradient.training import on_ranks


def test_ranks_of_one_plan_agree_on_the_largest_step() -> None:
    assert on_ranks(3, lambda comm: agree_on_plan(comm, ["a", "b"], 5 * comm.rank)) == [10, 10, 10]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([["a", "b"], ["a", "b"], ["a", "x"]], "Rank 0 has 'b', rank 2 has 'x'."),
        ([["a", "b"], ["a"], ["a", "b"]], "Rank 0 has 'b', rank 1 has 'nothing'."),
        ([["a"], ["a", "b", "c"], ["a"]], "Rank 0 has 'nothing', rank 1 has 'b'."),
    ],
)
def test_ranks_of_different_plans_all_raise_with_both_lines(
    lines: list[list[str]], text: str
) -> None:
    def body(comm: LoopbackCommunicator) -> str:
        with pytest.raises(PeerError, match=text) as caught:
            agree_on_plan(comm, lines[comm.rank], 0)
        return str(caught.value)

    for rank, said in enumerate(on_ranks(3, body)):
        assert said.startswith(f"rank {rank}: the ranks would exchange different gradients.")
        assert said.endswith("same options of DistributedOptimizer, on every rank.")


def test_status_holds_what_every_rank_said() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        status = exchange_status(
            comm,
            active=comm.rank > 0,
            gradients=[NO_GRADIENT, DENSE_GRADIENT, SPARSE_GRADIENT + comm.rank],
            hyperparameters=[0.1 * comm.rank, -1e300],
        )
        assert status.active == (False, True, True)
        assert status.num_active == 2
        assert torch.equal(status.gradients, torch.tensor([[0, 1, 2], [0, 1, 3], [0, 1, 4]]))
        assert status.hyperparameters == (0.1, -1e300)

    on_ranks(3, body)


def test_status_without_active_ranks_says_so() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        status = exchange_status(comm, active=False, gradients=[], hyperparameters=[])
        assert status.active == (False, False)
        assert status.num_active == 0

    on_ranks(2, body)
