"""The two-phase exchange on ranks: what is sent, summed, kept, and what becomes of it."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.gradient.exchange import Step
from horovod_sylvie.gradient.reduction import ReduceOp
from tests.gradient.training import assert_all_equal, on_ranks
from tests.gradient.two_phase_cases import SHAPES, Rank, assert_same, ordered_sum

RANKS = (1, 2, 3, 4)


@pytest.mark.parametrize("op", ["Average", "Sum"])
@pytest.mark.parametrize("num_ranks", RANKS)
def test_density_one_in_float32_equals_the_sum_of_gradients(num_ranks: int, op: ReduceOp) -> None:
    def body(comm: LoopbackCommunicator) -> list[Tensor]:
        rank = Rank(comm, density=1.0, value_dtype=torch.float32, op=op)
        for number in range(3):
            local = rank.set_gradients(number)
            assert rank.exchange_all(Step(number)) == []
            for name, own in local.items():
                everyone = comm.allgather(own[None], name=f"test.{name}").wait()
                scale = torch.tensor(1 / comm.size if op == "Average" else 1.0)
                assert torch.equal(rank.gradients()[name], ordered_sum(everyone.unbind()) * scale)
        assert not any(bool(each.any()) for each in rank.kept().values())
        return list(rank.gradients().values())

    on_ranks(num_ranks, body)


@pytest.mark.parametrize("op", ["Average", "Sum"])
@pytest.mark.parametrize("value_dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("num_ranks", "dtype"),
    [(1, torch.float32), (2, torch.float16), (3, torch.float32), (4, torch.bfloat16)],
)
def test_every_step_conserves_mass_on_each_rank_and_owner(
    num_ranks: int, dtype: torch.dtype, value_dtype: torch.dtype, op: ReduceOp
) -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        rank = Rank(comm, dtype=dtype, value_dtype=value_dtype, op=op)
        for step in range(4):
            before, local = rank.kept(), rank.set_gradients(step)
            assert rank.exchange_all(Step(step)) == []
            after = rank.kept()
            for number, name in enumerate(SHAPES):
                # this rank: what it had is what it sent and what it keeps
                total = before[f"residual {name}"] + local[name].float()
                own = rank.sent(number)
                left = after[f"residual {name}"]
                assert torch.equal(total.double(), own.double() + left.double())
                # this owner: what came is what it sent and what it keeps
                everyone = comm.allgather(own[None], name=f"test.{name}").wait()
                came = ordered_sum(everyone.unbind())[rank.places(number)]
                came = before[f"owner {name}"] + came
                sums = rank.sums_sent(number)
                passed_on = sums[rank.places(number)].double()
                assert torch.equal(came.double(), passed_on + after[f"owner {name}"].double())
                # and the gradient is what all owners sent
                scale = torch.tensor(1 / comm.size if op == "Average" else 1.0)
                assert torch.equal(rank.gradients()[name], (sums * scale).to(dtype))
                counts = rank.exchange.layout.counts[number]
                assert int(sums.count_nonzero()) == sum(counts) == int(own.count_nonzero())
        assert bool(after["owner large"].any()) or comm.size == 1
        return torch.cat(list(rank.gradients().values()))

    assert_all_equal(on_ranks(num_ranks, body))


def test_momentum_is_cleared_where_elements_were_sent() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        rank = Rank(comm, momentum=0.9)
        velocity = {name: torch.zeros(SHAPES[name]).flatten() for name in SHAPES}
        for step in range(3):
            local = rank.set_gradients(step)
            rank.exchange_all(Step(step))
            for number, name in enumerate(SHAPES):
                expected = velocity[name] * 0.9 + local[name]
                expected[rank.sent(number) != 0] = 0.0
                velocity[name] = rank.kept()[f"velocity {name}"]
                assert torch.equal(velocity[name], expected)

    on_ranks(3, body)


@pytest.mark.parametrize("moves", [0, 1, 2, 3])
@pytest.mark.parametrize("momentum", [None, 0.9])
def test_revert_after_any_move_brings_every_bit_back(momentum: float | None, moves: int) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        reverted, undisturbed = (Rank(comm, momentum=momentum) for _ in range(2))
        undisturbed.exchange.name = "undisturbed"
        for step in range(4):
            if step == 2:
                before = reverted.kept()
                reverted.set_gradients(77)
                move = reverted.exchange
                for make in [partial(move.start, Step(step)), move.proceed, move.wait][:moves]:
                    make()
                move.revert()
                assert_same(reverted.kept(), before)
            for rank in (reverted, undisturbed):
                rank.set_gradients(step)
                assert rank.exchange_all(Step(step)) == []
            assert_same(reverted.gradients(), undisturbed.gradients())
        assert_same(reverted.kept(), undisturbed.kept())

    on_ranks(3, body)


def test_rank_without_a_batch_sends_nothing_and_still_owns_its_share() -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        rank = Rank(comm, density=1.0, value_dtype=torch.float32)
        joined = comm.rank == 1
        local = rank.set_gradients(0)["large"]
        rank.feedback["large"].residual.fill_(5.0)
        if joined:
            rank.tensors["small"].grad = None
        assert rank.exchange_all(Step(0, joined=joined), num_active=2) == []
        kept = rank.feedback["large"].residual
        assert torch.equal(kept, torch.full_like(kept, 5.0 if joined else 0.0))
        everyone = comm.allgather(local[None] + 5.0, name="test").wait()
        assert torch.equal(
            rank.gradients()["large"], ordered_sum([everyone[0], everyone[2]]) * torch.tensor(0.5)
        )
        return rank.gradients()["small"]

    assert_all_equal(on_ranks(3, body))


def test_frozen_group_does_not_move_by_what_is_pending() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        rank = Rank(comm)
        rank.set_gradients(0)
        rank.exchange_all(Step(0))
        for tensor in rank.tensors.values():
            tensor.requires_grad_(False)
        before = rank.kept()
        assert rank.exchange_all(Step(1)) == []
        assert_same(rank.kept(), before)
        assert not any(bool(each.any()) for each in rank.gradients().values())

    on_ranks(2, body)


def test_parameter_without_a_gradient_sends_what_is_pending() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        rank = Rank(comm)
        rank.set_gradients(0)
        rank.exchange_all(Step(0))
        residual = rank.feedback["large"].residual.clone()
        rank.tensors["large"].grad = None
        rank.exchange_all(Step(1))
        left = rank.feedback["large"].residual
        assert torch.equal(residual.double(), rank.sent(0).double() + left.double())

    on_ranks(2, body)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_overflow_on_one_rank_is_told_to_all_and_changes_nothing(num_ranks: int) -> None:
    def body(comm: LoopbackCommunicator) -> list[str]:
        rank = Rank(comm)
        rank.set_gradients(0)
        rank.exchange_all(Step(0))
        before = rank.kept()
        rank.set_gradients(1)
        if comm.rank == 1:
            grad = rank.tensors["large"].grad
            assert grad is not None
            grad[0, :7] = float("inf")
        faults = rank.exchange_all(Step(1))
        assert_same(rank.kept(), before)
        rank.set_gradients(2)
        assert rank.exchange_all(Step(2)) == []
        return faults

    faults = on_ranks(num_ranks, body)
    assert faults == [["'large', 'small' on rank 1 (7 elements)"]] * num_ranks


def test_overflow_of_a_sum_is_told_to_all_and_changes_nothing() -> None:
    def body(comm: LoopbackCommunicator) -> list[str]:
        rank = Rank(comm)
        rank.set_gradients(0)
        grad = rank.tensors["large"].grad
        assert grad is not None
        grad.view(-1)[4096] = 3e38  # of owner 1
        before = rank.kept()
        faults = rank.exchange_all(Step(0))
        assert_same(rank.kept(), before)
        return faults

    faults = on_ranks(2, body)
    assert faults == [["'large', 'small' in the sum on rank 1 (1 elements)"]] * 2


def test_loss_scale_and_clipping_scale_gradients_not_residuals() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        plain, scaled = Rank(comm), Rank(comm)
        scaled.exchange.name = "scaled"
        for step in range(3):
            for rank, factor in ((plain, 0.5), (scaled, 1024.0)):
                rank.set_gradients(step)
                for tensor in rank.tensors.values():
                    assert tensor.grad is not None
                    tensor.grad *= factor
            plain.exchange_all(Step(step))
            scaled.exchange_all(Step(step, clip=0.5, loss_scale=1024.0))
            assert_same(plain.kept(), scaled.kept())
            for name, gradient in plain.gradients().items():
                assert torch.equal(gradient * 1024.0, scaled.gradients()[name])

    on_ranks(2, body)


def test_owner_residual_in_learning_rate_units_follows_the_rate() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        rank = Rank(comm, residual_units="learning_rate", rate=0.5)
        rank.set_gradients(0)
        rank.exchange_all(Step(0))
        before = rank.kept()["owner large"]
        rank.rate = 0.25
        for tensor in rank.tensors.values():
            tensor.grad = None
        for feedback in rank.feedback.values():
            feedback.residual.zero_()
        rank.exchange_all(Step(1))
        sums = rank.sums_sent(0)[rank.places(0)]
        # What waited at a rate of 0.5 counts twice at 0.25
        assert torch.equal(2.0 * before, sums + rank.kept()["owner large"])

    on_ranks(2, body)


def test_warmup_changes_density_in_the_same_step_on_every_rank() -> None:
    warmup = hvs.Warmup(steps=2, densities=(1.0, 0.5))

    def body(comm: LoopbackCommunicator) -> list[int]:
        rank = Rank(comm, density=0.01, warmup=warmup)
        counts = []
        for step in range(3):
            rank.set_gradients(step)
            assert rank.exchange_all(Step(step)) == []
            counts.append(rank.exchange.layout.num_selected)
            assert [int(rank.sent(number).count_nonzero()) for number in (0, 1)] == list(counts[-1])
        return counts

    large = 173 * 200  # shares of 18216 and 16384
    for counts in on_ranks(2, body):
        assert counts == [(large, 55), (large // 2, 28), (183 + 164, 1)]


def test_cost_counts_rows_to_others_and_sums_to_others() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        rank = Rank(comm)
        rank.set_gradients(0)
        rank.exchange_all(Step(0, sampled=True))
        nbytes = rank.exchange.layout.nbytes
        assert rank.exchange.payload_bytes == rank.exchange.cost.payload_bytes == 4 * nbytes
        assert rank.exchange.cost.bytes_sent == 2 * 2 * nbytes
        assert rank.exchange.cost.num_steps == 1

    on_ranks(3, body)


def test_sampled_norms_are_those_of_the_gradient_and_of_what_was_sent() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        rank = Rank(comm)
        assert rank.exchange.sent_norms() == [0.0, 0.0]
        local = rank.set_gradients(0)
        rank.exchange_all(Step(0, clip=0.5, sampled=True))
        norms = zip(rank.exchange.gradient_norms, rank.exchange.sent_norms(), strict=True)
        for number, (gradient, sent) in enumerate(norms):
            assert gradient == pytest.approx(0.5 * float(list(local.values())[number].norm()))
            assert sent == pytest.approx(float(rank.sent(number).norm()))

    on_ranks(2, body)
