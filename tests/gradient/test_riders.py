"""Small parameters in the payload of others: exact, everywhere the same, and checked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.gradient.compression import Lags
from horovod_sylvie.gradient.grouping import make_groups
from horovod_sylvie.gradient.parameter import ExchangedParameter
from horovod_sylvie.planning.plan import Plan, PlannedGroup
from tests.gradient.training import (
    assert_all_equal,
    exchange_of,
    make_model,
    on_ranks,
    train,
    vector_of,
    wrap,
)

POLICY = hvs.Compression.lags(min_elements=0)


def ride(optimizer: Any, density: float = 1.0) -> None:
    """Let everything travel in one payload."""
    exchange = exchange_of(optimizer)
    assert exchange.adaptive is not None
    names = [each.name for each in exchange.planned_parameters()]
    exchange.adaptive.use(Plan((PlannedGroup(tuple(names[::-1]), "allgather", density),)))
    exchange.follow_plan()
    assert len(exchange.exchanges) == 1


def trained_riding(comm: LoopbackCommunicator, policy: Lags, **options: Any) -> Tensor:
    model = make_model()
    optimizer = wrap(model, comm, compression=policy, **options)
    ride(optimizer)
    train(model, optimizer, comm)
    return vector_of(model)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_riding_run_at_density_one_equals_one_without_compression(size: int, op: str) -> None:
    policy = hvs.Compression.lags(min_elements=0, value_dtype=torch.float32)

    def body(comm: LoopbackCommunicator) -> tuple[Tensor, Tensor]:
        plain = make_model()
        train(plain, wrap(plain, comm, op=op), comm)
        return vector_of(plain), trained_riding(comm, policy, op=op)

    results = on_ranks(size, body)
    assert_all_equal([riding for _, riding in results])
    for plain, riding in results:
        torch.testing.assert_close(riding, plain, rtol=1e-5, atol=1e-6)


def test_riders_have_no_error_at_a_low_density() -> None:
    def body(comm: LoopbackCommunicator) -> list[tuple[Tensor, Tensor]]:
        models = [make_model(), make_model()]
        optimizers = [wrap(models[0], comm), wrap(models[1], comm, compression=POLICY)]
        ride(optimizers[1], density=0.05)
        for model, optimizer in zip(models, optimizers, strict=True):
            train(model, optimizer, comm, range(1))
        pairs = zip(models[0].named_parameters(), models[1].named_parameters(), strict=True)
        return [(p.detach(), q.detach()) for (_, p), (_, q) in pairs if p.dim() == 1]

    for pairs in on_ranks(3, body):
        assert len(pairs) == 4
        for plain, riding in pairs:
            torch.testing.assert_close(riding, plain, rtol=1e-6, atol=1e-7)


def test_nonfinite_rider_is_refused_on_every_rank() -> None:
    def body(comm: LoopbackCommunicator) -> str:
        model = make_model()
        optimizer = wrap(model, comm, compression=POLICY)
        ride(optimizer)
        before = vector_of(model)
        loss = sum(each.sum() for each in model.parameters())
        if comm.rank == 1:
            loss = loss + torch.inf * model[0].bias.sum()
        loss.backward()  # type: ignore[union-attr]
        with pytest.raises(hvs.NonFiniteGradientError) as raised:
            optimizer.step()
        assert torch.equal(vector_of(model), before)
        return str(raised.value)

    for text in on_ranks(2, body):
        assert "'0.bias' (the sum over ranks)" in text


def test_rank_without_a_batch_sends_no_riders() -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        model = make_model()
        optimizer = wrap(
            model,
            comm,
            lambda params: torch.optim.SGD(params, lr=0.1),
            compression=hvs.Compression.lags(min_elements=0, value_dtype=torch.float32),
            uneven_batches=True,
        )
        ride(optimizer)
        train(model, optimizer, comm, range(3 if comm.rank == 0 else 1))
        optimizer.join()
        return vector_of(model)

    assert_all_equal(on_ranks(2, body))


def test_what_cannot_ride_is_fused() -> None:
    def named(name: str, *shape: int, dtype: torch.dtype = torch.float32) -> ExchangedParameter:
        return ExchangedParameter(name, nn.Parameter(torch.zeros(shape, dtype=dtype)))

    parameters = [
        named("w", 4, 4),
        named("bias", 4),
        named("double", 4, dtype=torch.float64),
        named("v", 4, 4),
    ]
    plan = Plan(
        (
            PlannedGroup(("v",), "two-phase", 0.5),
            PlannedGroup(("double", "bias", "w"), "allgather", 0.5),
        )
    )
    groups = {group.name: group for group in make_groups(parameters, POLICY, None, plan)}
    assert [each.name for each in groups["w"].riders] == ["bias"]
    assert groups["double.fused"].kind == "fused"
    assert groups["v"].kind == "two-phase"
    owned = Plan((PlannedGroup(("v", "double", "bias", "w"), "two-phase", 0.5),))
    kinds = {group.kind: group for group in make_groups(parameters, POLICY, None, owned)}
    assert set(kinds) == {"two-phase", "fused"}
    assert not kinds["two-phase"].riders
