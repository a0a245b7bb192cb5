"""The two-phase exchange where bytes are wrong, or the ranks change: nothing is used, or lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator, LoopbackHandle
from horovod_sylvie.gradient.exchange import Step
from horovod_sylvie.ops.checksum import checksum
from tests.gradient.training import on_ranks
from tests.gradient.two_phase_cases import SHAPES, Rank, assert_same, ordered_sum

Spoil = Callable[[Tensor], None]


class SpoiledCommunicator:
    """A communicator that changes what it is to send, while it is told to."""

    def __init__(self, comm: LoopbackCommunicator) -> None:
        self._comm = comm
        self.rank, self.size = comm.rank, comm.size
        self.ranks_changed, self.allreduce = comm.ranks_changed, comm.allreduce
        self.allreduce_ = comm.allreduce_
        self.spoil_rows: Spoil | None = None
        self.spoil_sums: Spoil | None = None

    def alltoall(
        self, tensor: Tensor, send_splits: Sequence[int], recv_splits: Sequence[int], *, name: str
    ) -> LoopbackHandle:
        """Send rows that are changed before. tensor: [P, B]"""
        tensor = tensor.clone()
        if self.spoil_rows is not None:
            self.spoil_rows(tensor)
        return self._comm.alltoall(tensor, send_splits, recv_splits, name=name)

    def allgather(self, tensor: Tensor, *, name: str) -> LoopbackHandle:
        """Send a payload that is changed before. tensor: [B]"""
        tensor = tensor.clone()
        if self.spoil_sums is not None:
            self.spoil_sums(tensor)
        return self._comm.allgather(tensor, name=name)


def flip_a_bit(payload: Tensor) -> None:
    payload[500] ^= 4


def reseal(payload: Tensor) -> None:
    payload[40:48] = 0
    number = torch.tensor([checksum(payload)], dtype=torch.uint64)
    payload[40:48] = number.view(torch.uint8)


def forge_indices(payload: Tensor) -> None:
    """Make the first indices of the first section equal, under a right checksum."""
    payload[64 + 4 : 64 + 8] = 0xFF
    reseal(payload)


def swap_rows(rows: Tensor) -> None:
    rows.copy_(rows.flip(0))


def row_to(owner: int, spoil: Spoil) -> Spoil:
    return lambda rows: spoil(rows[owner])


def of_another_step(payload: Tensor) -> None:
    payload[16] ^= 1
    reseal(payload)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (row_to(2, flip_a_bit), "checksum .* bytes changed on the way"),
        (row_to(2, forge_indices), "its indices do not ascend inside their blocks"),
        (row_to(2, of_another_step), "it is of step 0 instead of 1"),
        (swap_rows, "plan hash .* another model, density or option"),
    ],
    ids=["bit", "section", "step", "owner"],
)
def test_wrong_row_is_an_error_on_every_rank_and_names_its_sender(spoil: Spoil, text: str) -> None:
    def body(comm: LoopbackCommunicator) -> str:
        spoiled = SpoiledCommunicator(comm)
        rank = Rank(spoiled)
        rank.set_gradients(0)
        rank.exchange_all(Step(0))
        before = rank.kept()
        if comm.rank == 1:
            spoiled.spoil_rows = spoil
        rank.set_gradients(1)
        rank.exchange.start(Step(1))
        rank.exchange.proceed()
        with pytest.raises(hvs.PayloadError) as caught:
            rank.exchange.wait()
        rank.exchange.revert()
        assert_same(rank.kept(), before)
        spoiled.spoil_rows = None
        assert rank.exchange_all(Step(1)) == []
        return str(caught.value)

    messages = on_ranks(3, body)
    for message in messages:
        assert message.startswith(
            "the payload of rank 1 for gradient group 'group' at step 1 is wrong: "
        )
        assert "Nothing of it was used" in message
    # the owner says what it saw; the others, which owner that was
    assert re.search(text, messages[2])
    if spoil is not swap_rows:
        assert "rank 2, which it was sent to, could not use it" in messages[0]


@pytest.mark.parametrize(
    ("spoil", "text"),
    [(flip_a_bit, "bytes changed on the way"), (of_another_step, "it is of step 1 instead of 0")],
    ids=["bit", "step"],
)
def test_wrong_sums_are_an_error_on_every_rank_and_name_their_owner(
    spoil: Spoil, text: str
) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        spoiled = SpoiledCommunicator(comm)
        rank = Rank(spoiled)
        before = rank.kept()
        rank.set_gradients(0)
        if comm.rank == 0:
            spoiled.spoil_sums = spoil
        rank.exchange.start(Step(0))
        rank.exchange.proceed()
        with pytest.raises(hvs.PayloadError, match=f"the payload of rank 0 .*{text}"):
            rank.exchange.wait()
        rank.exchange.revert()
        assert_same(rank.kept(), before)

    on_ranks(3, body)


def test_forged_section_of_sums_writes_nothing() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        spoiled = SpoiledCommunicator(comm)
        rank = Rank(spoiled)
        local = rank.set_gradients(0)
        if comm.rank == 0:
            spoiled.spoil_sums = forge_indices
        rank.exchange.start(Step(0))
        rank.exchange.proceed()
        assert rank.exchange.wait() == []
        with pytest.raises(ValueError, match="add_many: the section of rank 0 is corrupt"):
            rank.exchange.decode(3)
        rank.exchange.revert()
        assert_same(rank.gradients(), local)
        assert not any(bool(each.any()) for each in rank.kept().values())

    on_ranks(3, body)


def test_ranks_of_another_density_do_not_understand_each_other() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        # 19 and 22 elements of a share: other sections, in payloads of the same length
        rank = Rank(comm, density=0.001 + 0.0002 * comm.rank)
        rank.set_gradients(0)
        rank.exchange.start(Step(0))
        rank.exchange.proceed()
        with pytest.raises(hvs.PayloadError, match=r"plan hash .* another model, density or opti"):
            rank.exchange.wait()
        rank.exchange.revert()

    on_ranks(2, body)


def pending_of(ranks: Sequence[Rank], name: str) -> Tensor:
    """Return what is pending on all ranks, owners included. [D], float64"""
    total = torch.zeros(torch.Size(SHAPES[name]).numel(), dtype=torch.float64)
    for rank in ranks:
        total += rank.feedback[name].residual.double()
        owned = torch.zeros(total.numel())
        number = list(SHAPES).index(name)
        owned[rank.places(number)] = rank.owned()[name]
        total += owned.double()
    return total


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_owner_residuals_come_home_when_the_ranks_change(num_ranks: int) -> None:
    def first(comm: LoopbackCommunicator) -> Rank:
        rank = Rank(comm)
        for step in range(4):
            rank.set_gradients(step)
            rank.exchange_all(Step(step))
        return rank

    old = on_ranks(3, first)
    for rank in old:  # whole numbers, which float32 adds exactly
        for feedback in rank.feedback.values():
            feedback.residual.mul_(64.0).round_()
        for tensor in rank.owned().values():
            tensor.mul_(64.0).round_()
    survivors = old[:num_ranks]
    pending = {name: pending_of(survivors, name) for name in SHAPES}
    assert all(bool(rank.owned()["large"].any()) for rank in survivors)

    def second(comm: LoopbackCommunicator) -> None:
        kept = survivors[comm.rank] if comm.rank < len(survivors) else None
        rank = Rank(comm, kept, density=1.0, value_dtype=torch.float32, op="Sum")
        assert not any(bool(each.any()) for each in rank.owned().values())
        local = rank.set_gradients(9)
        for tensor in rank.tensors.values():
            assert tensor.grad is not None
            tensor.grad.zero_()
        assert rank.exchange_all(Step(4)) == []
        for name in local:
            assert torch.equal(rank.gradients()[name].double(), pending[name])

    on_ranks(num_ranks, second)


def test_owner_residuals_stay_when_the_exchange_of_the_same_ranks_is_built_again() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        rank = Rank(comm)
        rank.set_gradients(0)
        rank.exchange_all(Step(0))
        before = rank.kept()
        again = Rank(comm, rank, density=0.2)
        assert_same(again.kept(), before)
        local = again.set_gradients(1)
        residual = before["residual large"]
        assert again.exchange_all(Step(1)) == []
        sent = again.sent(0)
        left = again.kept()["residual large"]
        assert torch.equal((residual + local["large"]).double(), sent.double() + left.double())
        everyone = comm.allgather(sent[None], name="test").wait()
        came = before["owner large"] + ordered_sum(everyone.unbind())[again.places(0)]
        kept = again.kept()["owner large"].double()
        assert torch.equal(came.double(), again.sums_sent(0)[again.places(0)].double() + kept)

    on_ranks(2, body)
