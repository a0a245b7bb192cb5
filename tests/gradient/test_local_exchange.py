"""One rank alone, as an elastic job may become: what was pending is applied once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.gradient.exchange import Step
from horovod_sylvie.gradient.feedback import Feedback
from horovod_sylvie.gradient.gradient_exchange import GradientExchange
from horovod_sylvie.gradient.momentum import MomentumOptions
from horovod_sylvie.gradient.options import ExchangeOptions
from horovod_sylvie.gradient.outcome import NonFiniteGradientError
from horovod_sylvie.gradient.parameter import ExchangedParameter
from horovod_sylvie.gradient.reduction import Reduction
from tests.gradient.training import on_ranks, top_k

D = 12


def make(
    comm: LoopbackCommunicator, **options: Any
) -> tuple[ExchangedParameter, Feedback, GradientExchange]:
    """Return a parameter, what is pending of it, and the exchange of a job of one rank."""
    parameter = ExchangedParameter("weight", torch.nn.Parameter(torch.zeros(3, 4)))
    taken = {}
    if options.pop("dgc", False):
        taken = {id(parameter.tensor): MomentumOptions(0.5, 0.0)}
    exchange = GradientExchange(
        comm,
        [parameter],
        ExchangeOptions(top_k(), Reduction(), momentum=taken, **options),
        passes=1,
        rate_of=lambda _: 0.1,
        hyperparameters=list,
    )
    feedback = exchange.factory.feedback["weight"]
    feedback.residual.copy_(torch.arange(D))
    if feedback.velocity is not None:
        feedback.velocity.fill_(2.0)
    return parameter, feedback, exchange


def backward(parameter: ExchangedParameter, gradient: Tensor) -> None:
    parameter.tensor.grad = None
    (parameter.tensor * gradient.view(3, 4)).sum().backward()


@pytest.mark.parametrize("dgc", [False, True])
def test_what_is_pending_is_applied_once(dgc: bool) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        parameter, feedback, exchange = make(comm, dgc=dgc)
        gradient = torch.full((D,), 3.0)
        backward(parameter, gradient)
        exchange.synchronize()
        first = 0.5 * 2 + gradient if dgc else gradient
        assert torch.equal(parameter.gradient(), torch.arange(D) + first)
        assert not feedback.residual.any()
        backward(parameter, gradient)
        exchange.synchronize()
        assert torch.equal(parameter.gradient(), 0.5 * first + gradient if dgc else gradient)

    on_ranks(1, body)


@pytest.mark.parametrize("dgc", [False, True])
def test_gradient_that_is_not_finite_leaves_what_is_pending(dgc: bool) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        parameter, feedback, exchange = make(comm, dgc=dgc)
        bad = torch.full((D,), float("nan"))
        backward(parameter, bad)
        with pytest.raises(NonFiniteGradientError, match="'weight'"):
            exchange.synchronize()
        assert torch.equal(feedback.residual, torch.arange(D).float())
        if feedback.velocity is not None:
            assert torch.equal(feedback.velocity, torch.full((D,), 2.0))

    on_ranks(1, body)


@pytest.mark.parametrize("dgc", [False, True])
def test_overflow_of_a_scaled_loss_leaves_what_is_pending(dgc: bool) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        parameter, feedback, exchange = make(comm, dgc=dgc, scaler=scaler)
        backward(parameter, torch.full((D,), float("inf")))
        assert exchange.synchronize().overflow
        assert torch.equal(feedback.residual, torch.arange(D).float())
        scaler.scale(torch.ones(()))
        backward(parameter, torch.full((D,), 8 * 3.0))
        assert not exchange.synchronize().overflow
        first = 0.5 * 2 + 3.0 if dgc else 3.0
        assert torch.equal(parameter.gradient(), 8 * (torch.arange(D) + first))

    on_ranks(1, body)


def test_step_without_gradient_applies_what_is_pending() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        parameter, feedback, exchange = make(comm)
        (alone,) = exchange.exchanges
        alone.start(Step(0))
        assert alone.wait() == []
        alone.decode(1)
        alone.commit()
        assert torch.equal(parameter.gradient(), torch.arange(D).float())
        assert not feedback.residual.any()

    on_ranks(1, body)


def test_exchange_that_is_taken_back_leaves_what_is_pending() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        _, feedback, exchange = make(comm, dgc=True)
        (alone,) = exchange.exchanges
        alone.start(Step(0))
        alone.revert()
        assert torch.equal(feedback.residual, torch.arange(D).float())
        assert feedback.velocity is not None
        assert torch.equal(feedback.velocity, torch.full((D,), 2.0))

    on_ranks(1, body)
