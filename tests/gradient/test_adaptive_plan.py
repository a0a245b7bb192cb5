"""Densities that adapt: what is measured, what is decided, and that all ranks follow."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch
from torch import nn

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.planning.plan import Plan, PlannedGroup
from tests.gradient.slow_link import SlowCommunicator
from tests.gradient.training import (
    assert_all_equal,
    exchange_of,
    feedback_of,
    fill,
    make_model,
    on_ranks,
    residuals_of,
    train,
    vector_of,
    wrap,
)

FAST, SLOW = 1e-10, 5e-7  # seconds per byte
START_S = 5e-4
BACKWARD_S = 0.008  # of each layer: much longer than what threads wait for one another


class SlowBackward(torch.autograd.Function):
    """The identity, whose backward takes a while."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        time.sleep(BACKWARD_S)
        return grad


class SlowLayer(nn.Linear):
    """A linear layer that takes a while before its gradient is there."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = SlowBackward.apply(super().forward(x))
        return result


def lags(**options: Any) -> Any:
    """Return the policy under which every matrix may be sparse, however small."""
    return hvs.Compression.lags(**({"min_elements": 0, "replan_every": 20} | options))


def make_wide_model() -> nn.Sequential:
    """Make a model whose selected gradients take longer on the slow link than its backward."""
    model = nn.Sequential(SlowLayer(256, 256), nn.Tanh(), SlowLayer(256, 256, bias=False))
    fill(model)
    return model


def train_wide(model: nn.Module, optimizer: Any, rank: int, num_steps: int) -> list[float]:
    """Take steps, and return the losses."""
    generator = torch.Generator().manual_seed(rank)
    inputs = torch.randn(32, 256, generator=generator)
    losses = []
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss = (model(inputs) - inputs).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def plan_of(optimizer: Any) -> Plan:
    """Return the plan in use."""
    plan = optimizer.telemetry().plan.plan
    assert isinstance(plan, Plan)
    return plan


def selected(plan: Plan) -> float:
    """Return the mean density of the two matrices."""
    return sum(group.density for group in plan.groups for name in group.names if "weight" in name)


def slow(comm: LoopbackCommunicator, seconds_per_byte: float) -> SlowCommunicator:
    return SlowCommunicator(comm, start_s=START_S, seconds_per_byte=seconds_per_byte)


@pytest.mark.parametrize("size", [2, 3])
def test_slow_link_makes_matrices_sparse_and_fast_link_denser(size: int) -> None:
    def body(comm: LoopbackCommunicator, seconds_per_byte: float) -> tuple[Plan, torch.Tensor]:
        model = make_wide_model()
        optimizer = wrap(model, slow(comm, seconds_per_byte), compression=lags())  # type: ignore[arg-type]
        train_wide(model, optimizer, comm.rank, 22)
        return plan_of(optimizer), vector_of(model)

    sent = {}
    for speed in (SLOW, FAST):
        results = on_ranks(size, lambda comm, speed=speed: body(comm, speed))  # type: ignore[misc]
        assert len({plan for plan, _ in results}) == 1
        assert_all_equal([vector for _, vector in results])
        sent[speed] = selected(results[0][0])
    assert sent[SLOW] < 0.2
    assert sent[FAST] > 2 * sent[SLOW]


def test_change_of_the_link_is_followed_and_loss_goes_on_falling() -> None:
    change = threading.Barrier(2)

    def body(comm: LoopbackCommunicator) -> tuple[list[Plan], list[float]]:
        model = make_wide_model()
        link = slow(comm, FAST)
        optimizer = wrap(model, link, compression=lags())  # type: ignore[arg-type]
        losses = train_wide(model, optimizer, comm.rank, 42)
        plans = [plan_of(optimizer)]
        change.wait(20)
        link.seconds_per_byte = SLOW
        losses += train_wide(model, optimizer, comm.rank, 42)
        return [*plans, plan_of(optimizer)], losses

    results = on_ranks(2, body, timeout_s=60)
    (before, after), losses = results[0]
    assert results[1][0] == [before, after]
    assert selected(after) < 0.5 * selected(before)
    assert losses[-1] < losses[41] < losses[0]


def test_change_of_plan_loses_nothing_that_is_pending() -> None:
    """From sparse to dense: what was pending is applied, once, and nothing stays."""

    def body(comm: LoopbackCommunicator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        model = make_model()
        optimizer = wrap(
            model,
            comm,
            lambda params: torch.optim.SGD(params, lr=1.0),
            compression=lags(max_density=0.1, value_dtype=torch.float32),
        )
        train(model, optimizer, comm, range(3))
        pending = torch.cat([each.flatten() for each in residuals_of(optimizer).values()])
        names = [each.name for each in exchange_of(optimizer).planned_parameters()]
        exchange = exchange_of(optimizer)
        assert exchange.adaptive is not None
        exchange.adaptive.use(Plan((PlannedGroup(tuple(reversed(names)), "dense"),)))
        exchange.follow_plan()
        before = vector_of(model)
        optimizer.zero_grad()
        sum(0.0 * each.sum() for each in model.parameters()).backward()  # type: ignore[union-attr]
        optimizer.step()
        left = torch.cat([each.flatten() for each in residuals_of(optimizer).values()])
        return pending, before - vector_of(model), left

    results = on_ranks(2, body)
    mean = sum(pending for pending, _, _ in results) / 2
    for _, moved, left in results:
        assert float(left.abs().max()) == 0.0
        assert float(mean.abs().max()) > 0.0
        assert moved.abs().sum() == pytest.approx(float(mean.abs().sum()), rel=1e-4)


def test_planned_dense_run_equals_one_without_compression() -> None:
    def body(comm: LoopbackCommunicator, momentum: str) -> tuple[torch.Tensor, torch.Tensor]:
        vectors = []
        for compression in (hvs.Compression.none, lags()):
            model = make_model()
            mode = momentum if compression is not hvs.Compression.none else "post"
            optimizer = wrap(model, comm, compression=compression, momentum=mode)
            exchange = exchange_of(optimizer)
            if exchange.adaptive is not None:
                names = [each.name for each in exchange.planned_parameters()]
                plan = Plan(tuple(PlannedGroup((name,), "dense") for name in names))
                exchange.adaptive.use(plan)
                exchange.follow_plan()
            train(model, optimizer, comm, range(4))
            vectors.append(vector_of(model))
        return vectors[0], vectors[1]

    for momentum in ("post", "dgc"):
        for plain, planned in on_ranks(2, lambda comm, m=momentum: body(comm, m)):  # type: ignore[misc]
            torch.testing.assert_close(plain, planned, rtol=1e-5, atol=1e-6)


def test_deterministic_plan_stays_and_comes_back_from_a_checkpoint() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        policy = lags(deterministic=True, replan_every=3)
        model = make_wide_model()
        link = slow(comm, SLOW)
        optimizer = wrap(model, link, compression=policy)  # type: ignore[arg-type]
        train_wide(model, optimizer, comm.rank, 10)
        first = plan_of(optimizer)
        link.seconds_per_byte = FAST
        train_wide(model, optimizer, comm.rank, 10)
        assert plan_of(optimizer) == first
        assert optimizer.telemetry().plan.num_changes == 0
        state = optimizer.state_dict()

        again = make_wide_model()
        resumed = wrap(again, slow(comm, FAST), compression=policy)  # type: ignore[arg-type]
        resumed.load_state_dict(state)
        for name, feedback in feedback_of(resumed).items():
            assert torch.equal(feedback.residual, feedback_of(optimizer)[name].residual)
        train_wide(again, resumed, comm.rank, 10)
        assert plan_of(resumed) == first

    on_ranks(2, body)


def test_rank_with_another_plan_is_named() -> None:
    def body(comm: LoopbackCommunicator) -> str:
        model = make_wide_model()
        optimizer = wrap(model, comm, compression=lags(replan_every=1000))  # type: ignore[arg-type]
        train_wide(model, optimizer, comm.rank, 3)
        exchange = exchange_of(optimizer)
        assert exchange.adaptive is not None
        names = [each.name for each in exchange.planned_parameters()]
        density = 0.04 if comm.rank == 1 else 0.05
        plan = Plan(
            (
                PlannedGroup((names[2],), "allgather", 0.05),
                PlannedGroup((names[0],), "allgather", density),
                PlannedGroup((names[1],), "dense"),
            )
        )
        exchange.adaptive.use(plan)
        exchange.follow_plan()
        with pytest.raises(hvs.CommunicationError) as raised:
            train_wide(model, optimizer, comm.rank, 1)
        return str(raised.value)

    messages = on_ranks(2, body)
    assert any("rank 1" in text and "plan" in text for text in messages), messages


def test_plan_of_a_checkpoint_for_another_model_is_refused() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_wide_model()
        optimizer = wrap(model, comm, compression=lags(deterministic=True))
        train_wide(model, optimizer, comm.rank, 7)
        state = optimizer.state_dict()
        state["horovod_sylvie"]["plan"] = state["horovod_sylvie"]["plan"].replace("0.weight", "w")
        before = residuals_of(optimizer)
        with pytest.raises(ValueError, match="plan_from_json: expected layers of this model only"):
            optimizer.load_state_dict(state)
        for name, residual in residuals_of(optimizer).items():
            assert torch.equal(residual, before[name])

    on_ranks(2, body)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"min_density": 0.0}, "expected a number in .0, 1. for 'min_density', got 0.0"),
        ({"max_density": 1.5}, "expected a number in .0, 1. for 'max_density', got 1.5"),
        ({"min_density": 0.1, "max_density": 0.01}, "expected 'min_density' of at most"),
        ({"replan_every": 0}, "expected a number of steps from 1 for 'replan_every', got 0"),
        ({"exchange": "ring"}, "expected 'auto' or 'allgather' or 'two-phase' for 'exchange'"),
        ({"value_dtype": torch.float16}, "expected torch.bfloat16 or torch.float32"),
        ({"min_elements": -1}, "expected a number of elements from 0 for 'min_elements', got -1"),
        ({"residual_units": "m"}, "expected 'gradient' or 'learning_rate' for 'residual_units'"),
    ],
)
def test_policy_that_makes_no_sense_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"Compression.lags: {text}"):
        hvs.Compression.lags(**options)


def test_policy_of_wrong_types_is_refused() -> None:
    with pytest.raises(TypeError, match="expected True or False for 'deterministic', got 1"):
        hvs.Compression.lags(deterministic=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected an hvs.Warmup or None for 'warmup', got 3"):
        hvs.Compression.lags(warmup=3)  # type: ignore[arg-type]
