"""The handler that `hvd.elastic.TorchState` uses for our optimizers, without a job."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
from horovod.torch.elastic import state as elastic

from horovod_sylvie.comm.elastic import register_elastic_handler
from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from horovod_sylvie.gradient.compression import TopK
from horovod_sylvie.gradient.wrapped_optimizer import WrappedOptimizer
from horovod_sylvie.optimizer import DistributedOptimizer


def ignore(_: Any) -> None:
    """Do nothing with an optimizer."""


class Marked(torch.optim.SGD):
    """An optimizer of a type of its own."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What a sync does, in order; Horovod's broadcast decays the weights, as for a new rank."""
    seen: list[str] = []

    def broadcast(optimizer: Any, root_rank: int) -> None:
        seen.append("broadcast")
        optimizer.param_groups[0]["lr"] = 0.5
        for weight in optimizer.param_groups[0]["params"]:
            weight.detach().mul_(0.9)

    monkeypatch.setattr(elastic, "broadcast_optimizer_state", broadcast)
    before = elastic.get_handler_registry()
    yield seen
    elastic.set_handler_registry(before)


def test_handler_registered_twice_is_there_once_and_leaves_others_alone(calls: list[str]) -> None:
    before = elastic.get_handler_registry()
    register_elastic_handler(Marked, lambda _: calls.append("first"), ignore)
    register_elastic_handler(Marked, lambda _: calls.append("second"), ignore)
    assert len(elastic.get_handler_registry()) == len(before) + 1
    plain = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)
    assert type(elastic._get_handler(plain)) is elastic.OptimizerStateHandler


def test_sync_uses_the_new_ranks_first_and_keeps_the_weights(calls: list[str]) -> None:
    register_elastic_handler(
        Marked, lambda optimizer: calls.append(type(optimizer).__name__), ignore
    )
    weight = torch.ones(2, requires_grad=True)
    handler = elastic._get_handler(Marked([weight], lr=0.1))
    handler.sync()
    assert calls == ["Marked", "broadcast"]
    assert weight.tolist() == [1.0, 1.0]
    # What came by the broadcast is what a later failure goes back to
    handler.value.param_groups[0]["lr"] = 7.0
    handler.restore()
    assert handler.value.param_groups[0]["lr"] == 0.5


def wrapped_pair(comm: LoopbackCommunicator, **options: Any) -> tuple[torch.nn.Linear, Any]:
    layer = torch.nn.Linear(4, 4, bias=False)
    torch.nn.init.eye_(layer.weight)
    optimizer = DistributedOptimizer(
        torch.optim.SGD(layer.parameters(), lr=0.1),
        compression=TopK(density=0.25, min_elements=1),
        comm=comm,
        **options,
    )
    return layer, optimizer


def train(layer: torch.nn.Linear, optimizer: Any, rank: int) -> None:
    optimizer.zero_grad()
    layer(torch.arange(4.0) + rank).square().sum().backward()
    optimizer.step()


def test_commit_and_restore_bring_back_residuals_and_step(calls: list[str]) -> None:
    register_elastic_handler(
        WrappedOptimizer, ignore, lambda optimizer: optimizer._hvs_control.go_back()
    )

    def body(comm: LoopbackCommunicator) -> None:
        layer, optimizer = wrapped_pair(comm)
        train(layer, optimizer, comm.rank)
        handler = elastic._get_handler(optimizer)
        assert type(handler) is not elastic.OptimizerStateHandler
        committed = copy.deepcopy(optimizer.state_dict()["horovod_sylvie"])
        weight = layer.weight.detach().clone()
        for _ in range(2):
            train(layer, optimizer, comm.rank)
        after = layer.weight.detach().clone()
        layer.weight.detach().copy_(weight)
        handler.restore()
        restored = optimizer.state_dict()["horovod_sylvie"]
        assert restored["step"] == committed["step"] == 1
        for name, tensor in committed["tensors"].items():
            assert tensor.any()
            assert torch.equal(tensor, restored["tensors"][name])
        for _ in range(2):
            train(layer, optimizer, comm.rank)
        assert torch.equal(layer.weight, after)

    run_loopback(2, body)


def test_exchange_made_for_other_ranks_submits_nothing_in_backward() -> None:
    """Horovod skips the sync where ranks have only gone: hooks must not use what is stale."""

    def body(comm: LoopbackCommunicator) -> None:
        layer, optimizer = wrapped_pair(comm)
        train(layer, optimizer, comm.rank)
        submitted: list[str] = []
        real = comm.allgather

        def allgather(tensor: torch.Tensor, *, name: str) -> Any:
            submitted.append(name)
            return real(tensor, name=name)

        for changed in (True, False):
            comm.allgather = allgather  # type: ignore[method-assign]
            comm.ranks_changed = lambda changed=changed: changed  # type: ignore[method-assign]
            optimizer.zero_grad()
            layer(torch.ones(4)).sum().backward()
            assert bool(submitted) is not changed
            optimizer.step()
            assert submitted
            submitted.clear()

    run_loopback(2, body)
