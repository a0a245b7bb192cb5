"""What an owner keeps of its share: nothing is lost when it comes home, or is taken back."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from horovod_sylvie.gradient.feedback import Feedback
from horovod_sylvie.gradient.owner_residual import OwnerResidual, OwnerResiduals
from horovod_sylvie.gradient.parameter import ExchangedParameter
from horovod_sylvie.ops.shares import share_places
from horovod_sylvie.ops.top_k import restore_selected, section_bytes
from horovod_sylvie.ops.top_k_many import select_many

D, K = 20_000, 300
CPU = torch.device("cpu")


def make(*, seed: int | None = None, share: int = 1) -> OwnerResidual:
    owned = OwnerResidual(D, num_shares=3, share=share, device=CPU)
    if seed is not None:
        owned.residual.copy_(numbers(owned.residual.numel(), seed))
    return owned


def numbers(count: int, seed: int) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def select(owned: OwnerResidual, total: Tensor) -> tuple[Tensor, int]:
    """Select, and return what was selected, and how much was not finite. [S]"""
    size = owned.residual.numel()
    row = torch.zeros(1, section_bytes(size, K, torch.bfloat16), dtype=torch.uint8)
    selection = owned.prepare(total, ks=(K,), scale=1.0, rows=row, offset=0, dtype=torch.bfloat16)
    report = select_many([selection])
    owned.remember(report.each[0])
    sent = torch.zeros(size)
    restore_selected(row[0], num_elements=size, k=K, value_dtype=torch.bfloat16, residual=sent)
    return sent, report.each[0].num_nonfinite


def test_sum_and_residual_are_sent_or_kept_to_the_bit() -> None:
    owned = make()
    for step in range(4):
        before, total = owned.residual.clone(), numbers(owned.residual.numel(), step)
        sent, num_nonfinite = select(owned, total)
        owned.commit()
        assert num_nonfinite == 0
        assert int(sent.count_nonzero()) == K
        assert torch.equal((before + total).double(), sent.double() + owned.residual.double())


def test_revert_brings_every_bit_back() -> None:
    owned = make(seed=0)
    before, total = owned.residual.clone(), numbers(owned.residual.numel(), 1)
    total[::100] = float("inf")
    _, num_nonfinite = select(owned, total)
    owned.revert()
    owned.commit()
    assert num_nonfinite == len(total[::100])
    assert torch.equal(owned.residual, before)


def test_it_goes_home_to_its_own_places_and_nowhere_else() -> None:
    owned, feedback = make(seed=0), Feedback(D, CPU, momentum=None)
    feedback.residual.copy_(numbers(D, 1))
    expected = feedback.residual.clone()
    expected[share_places(D, 3, 1, CPU)] += owned.residual
    owned.go_home(feedback)
    assert torch.equal(feedback.residual, expected)
    assert not owned.residual.any()
    owned.go_home(feedback)
    assert torch.equal(feedback.residual, expected)


@pytest.mark.parametrize(
    ("own_rate", "rate", "factor"), [(0.5, 0.25, 2.0), (None, 0.25, 1.0), (0.5, None, 1.0)]
)
def test_it_goes_home_in_the_units_of_the_residual(
    own_rate: float | None, rate: float | None, factor: float
) -> None:
    owned, feedback = make(seed=0), Feedback(D, CPU, momentum=None)
    if own_rate is not None:
        owned.follow_rate(own_rate)
    if rate is not None:
        feedback.follow_rate(rate)
    expected = owned.residual * factor
    owned.go_home(feedback)
    assert torch.equal(feedback.residual[share_places(D, 3, 1, CPU)], expected)
    assert feedback.last_rate == (rate or own_rate)


def test_clear_keeps_nothing() -> None:
    parameter = ExchangedParameter("weight", torch.zeros(100, 200, requires_grad=True))
    feedback, owners = Feedback(D, CPU, momentum=None), OwnerResiduals()
    owned = owners.of(parameter, feedback, num_shares=3, share=1)
    owned.residual.fill_(1.0)
    owners.clear()
    assert not owned.residual.any()
    assert not feedback.residual.any()


def test_all_of_a_rank_are_kept_by_name_until_the_ranks_change() -> None:
    parameter = ExchangedParameter("weight", torch.zeros(100, 200, requires_grad=True))
    feedback, owners = Feedback(D, CPU, momentum=None), OwnerResiduals()
    first = owners.of(parameter, feedback, num_shares=3, share=1)
    first.residual.fill_(1.0)
    assert owners.of(parameter, feedback, num_shares=3, share=1) is first
    assert owners.all() == {"weight": first}
    assert not feedback.residual.any()
    second = owners.of(parameter, feedback, num_shares=3, share=0)  # another rank's number now
    assert second.residual.numel() == 4096 * 2
    assert not second.residual.any()
    expected = torch.zeros(D)
    expected[share_places(D, 3, 1, CPU)] = 1.0
    assert torch.equal(feedback.residual, expected)
    owners.take_home("weight", feedback)
    assert owners.all() == {}
    owners.take_home("weight", feedback)
    assert torch.equal(feedback.residual, expected)


def test_share_without_elements_keeps_nothing() -> None:
    owned, feedback = (
        OwnerResidual(100, num_shares=2, share=1, device=CPU),
        Feedback(100, CPU, momentum=None),
    )
    owned.go_home(feedback)
    owned.commit()
    owned.revert()
    assert owned.residual.numel() == 0
    assert not feedback.residual.any()
