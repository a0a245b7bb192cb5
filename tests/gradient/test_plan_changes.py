"""A plan in use, and what changes beside it: parameters, ranks' states, rates, the generator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.planning.plan import Plan, PlannedGroup
from tests.gradient.training import (
    assert_all_equal,
    exchange_of,
    fill,
    loss_of,
    make_model,
    on_ranks,
    residuals_of,
    train,
    vector_of,
    wrap,
)


def lags(**options: Any) -> Any:
    """Return a policy that keeps the plan that a test gives it."""
    return hvs.Compression.lags(**({"min_elements": 0, "deterministic": True} | options))


def use_plan(optimizer: Any, *groups: PlannedGroup) -> None:
    exchange = exchange_of(optimizer)
    assert exchange.adaptive is not None
    exchange.adaptive.use(Plan(groups))
    exchange.follow_plan()


def merged(optimizer: Any, kind: Any = "allgather", density: float = 0.2) -> None:
    """Let all matrices travel together, and the rest fused."""
    parameters = exchange_of(optimizer).planned_parameters()
    names = [each.name for each in parameters if each.tensor.dim() > 1][::-1]
    small = [each.name for each in parameters if each.tensor.dim() == 1][::-1]
    use_plan(
        optimizer,
        PlannedGroup(tuple(names), kind, density),
        PlannedGroup(tuple(small), "dense"),
    )


@pytest.mark.parametrize("size", [2, 3])
def test_parameter_that_thaws_joins_a_plan_in_use(size: int) -> None:
    def body(comm: LoopbackCommunicator, compression: Any) -> Tensor:
        model = make_model()
        frozen = model[3].weight.requires_grad_(False)
        optimizer = wrap(model, comm, lambda p: torch.optim.SGD(p, lr=0.1), compression=compression)
        train(model, optimizer, comm, range(2))
        if compression is not hvs.Compression.none:
            merged(optimizer, density=1.0)
            train(model, optimizer, comm, range(2, 3))
        else:
            train(model, optimizer, comm, range(2, 3))
        frozen.requires_grad_(True)
        train(model, optimizer, comm, range(3, 8))
        return vector_of(model)

    policy = lags(max_density=1.0, value_dtype=torch.float32)
    planned = on_ranks(size, lambda comm: body(comm, policy))
    assert_all_equal(planned)
    plain = on_ranks(size, lambda comm: body(comm, hvs.Compression.none))
    torch.testing.assert_close(planned[0], plain[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["allgather", "two-phase"])
def test_parameter_that_freezes_keeps_what_is_pending_in_a_merged_group(kind: str) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, lambda p: torch.optim.SGD(p, lr=0.1), compression=lags())
        train(model, optimizer, comm, range(2))
        merged(optimizer, kind)
        train(model, optimizer, comm, range(2, 4))
        frozen = model[3].weight.requires_grad_(False)
        before, pending = frozen.clone(), residuals_of(optimizer)["3.weight"]
        owned = {
            n: o.residual.clone() for n, o in exchange_of(optimizer).factory.owners.all().items()
        }
        train(model, optimizer, comm, range(4, 7))
        assert torch.equal(frozen, before)
        assert torch.equal(residuals_of(optimizer)["3.weight"], pending)
        assert bool(pending.any())
        for name, each in exchange_of(optimizer).factory.owners.all().items():
            if name == "3.weight":
                assert torch.equal(each.residual, owned[name])

    on_ranks(3, body)


def test_rank_zero_decides_also_that_there_is_no_plan() -> None:
    def body(comm: LoopbackCommunicator) -> tuple[str, Tensor]:
        model = make_model()
        optimizer = wrap(model, comm, compression=lags(deterministic=True))
        if comm.rank == 1:
            merged(optimizer)
        train(model, optimizer, comm, range(4))
        adaptive = exchange_of(optimizer).adaptive
        assert adaptive is not None
        return adaptive.report.digest, vector_of(model)

    results = on_ranks(2, body)
    assert [digest for digest, _ in results] == ["", ""]
    assert_all_equal([vector for _, vector in results])


def test_what_is_pending_keeps_its_rate_when_a_layer_turns_dense() -> None:
    def body(comm: LoopbackCommunicator) -> tuple[Tensor, Tensor]:
        model = make_model()
        policy = lags(max_density=0.1, value_dtype=torch.float32, residual_units="learning_rate")
        optimizer = wrap(model, comm, lambda p: torch.optim.SGD(p, lr=1.0), compression=policy)
        train(model, optimizer, comm, range(3))
        pending = torch.cat([each.flatten() for each in residuals_of(optimizer).values()])
        merged(optimizer, "dense", 1.0)
        optimizer.param_groups[0]["lr"] = 0.1
        before = vector_of(model)
        optimizer.zero_grad()
        sum(0.0 * each.sum() for each in model.parameters()).backward()  # type: ignore[union-attr]
        optimizer.step()
        return pending, before - vector_of(model)

    results = on_ranks(2, body)
    mean = sum(pending for pending, _ in results) / 2
    for _, moved in results:  # as at the rate of 1, at which it was computed
        assert float(moved.abs().sum()) == pytest.approx(float(mean.abs().sum()), rel=1e-4)


def test_measuring_leaves_the_global_generator_alone() -> None:
    models = [make_model() for _ in range(2)]
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)

    def body(comm: LoopbackCommunicator) -> None:
        model = models[comm.rank]
        train(model, wrap(model, comm, compression=lags()), comm, range(1))

    on_ranks(2, body)
    assert torch.equal(torch.rand(2), expected)


def test_nothing_is_planned_while_densities_warm_up() -> None:
    def body(comm: LoopbackCommunicator) -> list[bool]:
        model = make_model()
        optimizer = wrap(model, comm, compression=lags(warmup=hvs.Warmup(8), deterministic=True))
        planned = []
        for steps in (range(8), range(8, 16)):
            train(model, optimizer, comm, steps)
            planned.append(optimizer.telemetry().plan.plan is not None)
        return planned

    assert on_ranks(2, body) == 2 * [[False, True]]


def test_plan_that_names_an_embedding_loads_where_it_travels_by_row() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = nn.Sequential(nn.Embedding(20, 8, sparse=True), nn.Linear(8, 5, bias=False))
        fill(model)
        optimizer = wrap(model, comm, lambda p: torch.optim.SGD(p, lr=0.1), compression=lags())
        rows = torch.tensor([comm.rank, 3, 7])
        for _ in range(2):
            optimizer.zero_grad()
            model(rows).square().sum().backward()
            optimizer.step()
        state = optimizer.state_dict()
        saved = '{"density":0.5,"kind":"allgather","names":["1.weight","0.weight"]}'
        state["horovod_sylvie"]["plan"] = (
            f'{{"format":"horovod_sylvie.plan","groups":[{saved}],"version":1}}'
        )
        optimizer.load_state_dict(state)
        optimizer.zero_grad()
        model(rows).square().sum().backward()
        optimizer.step()
        assert model[0].weight.grad is not None
        assert model[0].weight.grad.is_sparse

    on_ranks(2, body)


def test_error_in_a_hook_does_not_stop_the_clock() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, compression=lags())
        train(model, optimizer, comm, range(2))
        adaptive = exchange_of(optimizer).adaptive
        assert adaptive is not None
        step = adaptive.measurements._step
        assert step is not None
        before = len(step.marks)
        with pytest.raises(RuntimeError, match="on purpose"), adaptive.measurements.paused():
            raise RuntimeError("on purpose")
        stops = [name for name, _ in step.marks[before:]]
        assert stops == [None, None]  # it stood still, and goes on
        loss_of(model, 2, comm.rank).backward()
        optimizer.step()

    on_ranks(2, body)
