"""Ways of exchange of the step benchmark are what they are called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from step_ddp import DDP_WAYS
from step_ways import NO_EXCHANGE, STOCK_HOROVOD, WAYS, bytes_of, make_optimizer, predicted_of
from torch import nn

import horovod_sylvie as hvs
from horovod_sylvie.gradient.adaptive_plan import PlanReport
from horovod_sylvie.planning.plan import Plan
from tests.gradient.training import on_ranks

OTHER_WAYS = (NO_EXCHANGE, STOCK_HOROVOD, *DDP_WAYS)
OWN_WAYS = [way for way in WAYS if way not in OTHER_WAYS]


def step(way: str, comm: hvs.LoopbackCommunicator) -> tuple[float, list[float]]:
    model = nn.Linear(200, 100)
    nn.init.ones_(model.weight)
    optimizer = make_optimizer(way, model, comm)
    model(torch.randn(4, 200)).sum().backward()
    optimizer.step()
    return bytes_of(way, optimizer, model, comm.size), [each.numel() for each in model.parameters()]


def test_no_exchange_is_the_plain_optimizer() -> None:
    def body(comm: hvs.LoopbackCommunicator) -> tuple[Any, float]:
        model = nn.Linear(3, 2)
        optimizer = make_optimizer(NO_EXCHANGE, model, comm)
        return optimizer, bytes_of(NO_EXCHANGE, optimizer, model, comm.size)

    for optimizer, num_bytes in on_ranks(2, body):
        assert type(optimizer) is torch.optim.SGD
        assert num_bytes == 0 and predicted_of(optimizer) is None


def test_dense_ways_send_what_rings_send() -> None:
    num_elements = 200 * 100 + 100
    for way, width in (("dense float32", 4), ("dense float16", 2)):
        for num_bytes, _ in on_ranks(4, lambda comm, way=way: step(way, comm)):
            assert num_bytes == 2 * 3 / 4 * width * num_elements
    model = nn.Linear(200, 100)
    assert bytes_of(STOCK_HOROVOD, None, model, 4) == 2 * 3 / 4 * 4 * num_elements


def test_sparse_ways_send_less_the_lower_their_density() -> None:
    dense, higher, lower = (
        on_ranks(2, lambda comm, way=way: step(way, comm))[0][0]
        for way in ("dense float32", "top-k 1 %", "top-k 0.1 %")
    )
    assert 0 < lower < higher < dense / 10


def test_every_way_of_this_package_steps_on_two_ranks() -> None:
    def body(comm: hvs.LoopbackCommunicator) -> int:
        model = nn.Linear(200, 100)
        optimizers = [make_optimizer(way, model, comm) for way in OWN_WAYS]
        for optimizer in optimizers:
            assert isinstance(optimizer, torch.optim.SGD)
        return len(optimizers)

    assert on_ranks(2, body) == 2 * [len(WAYS) - len(OTHER_WAYS)]


def test_unknown_way_is_refused() -> None:
    def body(comm: hvs.LoopbackCommunicator) -> None:
        with pytest.raises(ValueError, match="expected one of .* for 'way', got 'pigeon'"):
            make_optimizer("pigeon", nn.Linear(3, 2), comm)

    on_ranks(1, body)


def test_prediction_is_that_of_the_plan_in_use() -> None:
    def optimizer_with(report: Any) -> Any:
        return SimpleNamespace(telemetry=lambda: SimpleNamespace(plan=report))

    assert predicted_of(optimizer_with(PlanReport(Plan(()), predicted_step_s=0.25))) == 0.25
    assert predicted_of(optimizer_with(PlanReport())) is None  # no plan yet
    assert predicted_of(optimizer_with(None)) is None  # nothing is planned
