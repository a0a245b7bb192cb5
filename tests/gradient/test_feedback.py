"""What one rank keeps of one parameter: nothing of a gradient is ever lost or counted twice."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from horovod_sylvie.gradient.feedback import Feedback
from horovod_sylvie.ops.shares import add_shares
from horovod_sylvie.ops.top_k import restore_selected, section_bytes
from horovod_sylvie.ops.top_k_many import select_many

D, K = 500, 20
CPU = torch.device("cpu")


def make(*, momentum: float | None = None, seed: int | None = None) -> Feedback:
    feedback = Feedback(D, CPU, momentum=momentum)
    if seed is not None:
        feedback.residual.copy_(gradient(seed))
        if feedback.velocity is not None:
            feedback.velocity.copy_(gradient(seed + 1))
    return feedback


def gradient(seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(D, generator=torch.Generator().manual_seed(seed)).to(dtype)


def select(
    feedback: Feedback,
    grad: Tensor | None,
    *,
    dtype: torch.dtype = torch.bfloat16,
    scale: float = 1.0,
) -> tuple[Tensor, int]:
    """Select, and return what was selected, and how much was not finite. [D], float32"""
    row = torch.zeros(1, section_bytes(D, K, dtype), dtype=torch.uint8)
    report = select_many(
        [feedback.prepare(grad, ks=(K,), scale=scale, rows=row, offset=0, dtype=dtype)]
    )
    feedback.remember(report.each[0])
    sent = torch.zeros(D)
    restore_selected(row[0], num_elements=D, k=K, value_dtype=dtype, residual=sent)
    return sent, report.each[0].num_nonfinite


def accumulated(residual: Tensor, grad: Tensor, scale: float) -> Tensor:
    return residual + grad.float() * torch.tensor(scale)  # rounded once each, in float32


def assert_same_mass(total: Tensor, sent: Tensor, left: Tensor) -> None:
    assert torch.equal(total.double(), sent.double() + left.double())  # exact in float64


@pytest.mark.parametrize("scale", [1.0, 0.37, 1 / 1024])
@pytest.mark.parametrize("value_dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_gradient_and_residual_are_sent_or_kept_to_the_bit(
    dtype: torch.dtype, value_dtype: torch.dtype, scale: float
) -> None:
    feedback = make()
    for step in range(6):
        grad, before = gradient(step, dtype), feedback.residual.clone()
        sent, num_nonfinite = select(feedback, grad, dtype=value_dtype, scale=scale)
        feedback.commit()
        assert num_nonfinite == 0
        assert int(sent.count_nonzero()) == K
        assert_same_mass(accumulated(before, grad, scale), sent, feedback.residual)


def test_step_without_gradient_sends_from_the_residual() -> None:
    feedback = make(seed=0)
    before = feedback.residual.clone()
    sent, _ = select(feedback, None)
    feedback.commit()
    assert int(sent.count_nonzero()) == K
    assert_same_mass(before, sent, feedback.residual)


@pytest.mark.parametrize("value", [1e30, float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("momentum", [None, 0.9])
def test_revert_brings_every_bit_back(momentum: float | None, value: float) -> None:
    feedback, grad = make(momentum=momentum, seed=0), gradient(5)
    for each in (gradient(4), gradient(6)):  # both buffers have been in use
        select(feedback, each)
        feedback.commit()
    residual = feedback.residual.clone()
    velocity = None if feedback.velocity is None else feedback.velocity.clone()
    grad[::7] = value
    _, num_nonfinite = select(feedback, grad)
    feedback.revert()
    assert num_nonfinite == (0 if value == 1e30 else len(grad[::7]))
    assert torch.equal(feedback.residual, residual)
    if velocity is not None:
        assert torch.equal(feedback.velocity, velocity)


@pytest.mark.parametrize("momentum", [None, 0.9])
def test_residual_stays_finite_where_the_gradient_is_not(momentum: float | None) -> None:
    feedback, grad = make(momentum=momentum, seed=0), gradient(5)
    before, bad = feedback.residual.clone(), torch.arange(0, D, 7)
    grad[bad] = float("nan")
    select(feedback, grad)
    feedback.revert()
    assert bool(feedback.residual.isfinite().all())
    assert torch.equal(feedback.residual[bad], before[bad])
    if feedback.velocity is not None:
        assert bool(feedback.velocity.isfinite().all())


def test_commit_and_revert_of_nothing_change_nothing() -> None:
    feedback = make(momentum=0.9, seed=0)
    before = feedback.residual.clone()
    feedback.commit()
    feedback.revert()
    select(feedback, gradient(3))
    feedback.revert()
    feedback.commit()
    assert torch.equal(feedback.residual, before)


def test_momentum_correction_follows_its_equations() -> None:
    feedback = make(momentum=0.9)
    velocity, residual = torch.zeros(D), torch.zeros(D)
    for step in range(4):
        grad = gradient(step)
        velocity = velocity * 0.9 + grad * 0.5
        residual = residual + velocity
        chosen = residual.abs().topk(K).indices
        sent, _ = select(feedback, grad, dtype=torch.float32, scale=0.5)
        feedback.commit()
        expected = torch.zeros(D)
        expected[chosen] = residual[chosen]
        torch.testing.assert_close(sent, expected)
        residual[chosen], velocity[chosen] = 0.0, 0.0
        torch.testing.assert_close(feedback.residual, residual)
        assert feedback.velocity is not None
        torch.testing.assert_close(feedback.velocity, velocity)


def test_residual_in_learning_rate_units_follows_the_rate() -> None:
    feedback = make(seed=0)
    before = feedback.residual.clone()
    for rate, expected in [(0.1, 1.0), (0.1, 1.0), (0.05, 2.0), (0.0, 2.0), (0.2, 0.5)]:
        feedback.follow_rate(rate)
        # What is pending times the rate stays what it was
        torch.testing.assert_close(feedback.residual, before * expected)


@pytest.mark.parametrize("momentum", [None, 0.5])
def test_whole_is_all_that_is_pending_until_it_is_flushed(momentum: float | None) -> None:
    feedback, grad = make(momentum=momentum, seed=0), gradient(5)
    first = grad * 2.0
    if feedback.velocity is not None:
        first = 0.5 * feedback.velocity + first
    expected = feedback.residual + first
    for _ in range(2):  # nothing is changed yet
        assert torch.equal(feedback.whole(grad, 2.0), expected)
    feedback.flush()
    assert not feedback.residual.any()
    if feedback.velocity is not None:
        assert torch.equal(feedback.velocity, first)


@pytest.mark.parametrize("momentum", [None, 0.9])
@pytest.mark.parametrize("value_dtype", [torch.bfloat16, torch.float32])
def test_selection_by_share_is_committed_or_reverted_to_the_bit(
    value_dtype: torch.dtype, momentum: float | None
) -> None:
    size, counts = 5000, (K, 5)  # shares of 4096 and 904 elements
    feedback = Feedback(size, CPU, momentum=momentum)
    rows = torch.zeros(2, 256, dtype=torch.uint8)
    for step in range(5):
        grad = torch.randn(size, generator=torch.Generator().manual_seed(step))
        before = feedback.residual.clone()
        velocity = None if feedback.velocity is None else feedback.velocity.clone()
        selection = feedback.prepare(
            grad, ks=counts, scale=0.5, rows=rows, offset=8, dtype=value_dtype
        )
        report = select_many([selection]).each[0]
        feedback.remember(report)
        if step == 2:
            feedback.revert()
            assert torch.equal(feedback.residual, before)
            assert velocity is None or torch.equal(feedback.velocity, velocity)
            continue
        feedback.commit()
        sent = torch.zeros(size)
        add_shares(rows, offset=8, ks=counts, value_dtype=value_dtype, scale=1.0, out=sent)
        assert report.num_nonfinite == 0
        assert int(sent[:4096].count_nonzero()) == K
        assert int(sent[4096:].count_nonzero()) == 5
        added = grad * 0.5
        if velocity is not None:
            added = velocity * 0.9 + added
            assert torch.equal(feedback.velocity, torch.where(sent == 0, added, 0.0))
        assert_same_mass(before + added, sent, feedback.residual)
