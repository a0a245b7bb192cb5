"""What programs do between and after steps, and what must still be right afterwards."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from tests.gradient.training import (
    assert_all_equal,
    exchange_of,
    loss_of,
    make_batch,
    make_model,
    on_ranks,
    residuals_of,
    top_k,
    train,
    vector_of,
    wrap,
)


class Branches(nn.Module):
    """Two layers of which a rank may use one only."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 20), nn.Linear(6, 20)

    def forward(self, x: Tensor, *, both: bool) -> Tensor:
        return self.b(x).sum() + (self.a(x).sum() if both else 0.0)


def test_telemetry_of_a_layer_that_a_rank_does_not_use_stops_nobody() -> None:
    def body(comm: LoopbackCommunicator) -> list[float]:
        torch_model = Branches()
        for parameter in torch_model.parameters():
            parameter.detach().fill_(0.1)
        optimizer = wrap(torch_model, comm, compression=top_k(), telemetry_every=1)
        for step in range(3):
            optimizer.zero_grad()
            x = make_batch(step, comm.rank)[0][:, :6]
            torch_model(x, both=comm.rank == 0 or step == 0).backward()
            optimizer.step()
        return [sample.delta for sample in optimizer.telemetry().samples.values()]

    deltas = on_ranks(2, body)
    assert len(deltas[0]) == 2
    assert deltas[0] == deltas[1]


def test_state_that_one_rank_loads_between_steps_stops_nobody() -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        model = make_model()
        optimizer = wrap(model, comm, compression=top_k())
        train(model, optimizer, comm)
        if comm.rank == 0:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        train(model, optimizer, comm)
        return vector_of(model)

    assert_all_equal(on_ranks(2, body))


def test_training_goes_on_after_a_damaged_payload() -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        model = make_model()
        optimizer = wrap(model, comm, compression=top_k())
        train(model, optimizer, comm, range(2))
        before = residuals_of(optimizer)
        optimizer.zero_grad()
        loss_of(model, 2, comm.rank).backward()
        comm.allreduce(torch.ones(1), name="test.sent").wait()
        if comm.rank == 0:
            with comm._world.changed:
                for round_ in comm._world.rounds.values():
                    if 0 in round_.contributions and round_.contributions[0].kind == "allgather":
                        round_.contributions[0].tensor[100] ^= 4
        comm.allreduce(torch.ones(1), name="test.damaged").wait()
        with pytest.raises(hvs.PayloadError):
            optimizer.step()
        for name, residual in residuals_of(optimizer).items():
            assert torch.equal(residual, before[name])
        train(model, optimizer, comm, range(3, 5))
        return vector_of(model)

    assert_all_equal(on_ranks(2, body))


def test_momentum_that_a_scheduler_cycles_is_refused_with_momentum_correction() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, "sgd", compression=top_k(), momentum="dgc")
        torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)
        loss_of(model, 0, comm.rank).backward()
        with pytest.raises(RuntimeError, match="expected momentum=0 in SGD.*cycle_momentum=False"):
            optimizer.step()

    on_ranks(2, body)


def test_saved_momentum_means_the_same_to_a_plain_optimizer() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, "sgd", compression=top_k(), momentum="dgc")
        inside = optimizer.param_groups[0]
        for saved in (optimizer.state_dict(), optimizer.consolidate()):
            plain = torch.optim.SGD(model.parameters(), 0.5)
            plain.load_state_dict(saved)
            assert plain.param_groups[0]["momentum"] == 0.9
            assert inside["momentum"] == 0.0
        inside["momentum"] = 0.9  # as hvd.broadcast_optimizer_state does with what it saw
        train(model, optimizer, comm, range(1))
        assert inside["momentum"] == 0.0
        kept = [each.get("momentum_buffer") for each in optimizer.state.values()]
        assert kept == [None] * len(kept)

    on_ranks(2, body)


class Counting(torch.optim.SGD):
    """A user's optimizer with defaults in its class."""

    factor = 1.0
    num_updates = 0

    def step(self, closure: Any = None) -> Any:
        self.num_updates += 1
        assert self.factor == 0.7
        return super().step(closure)


def test_attributes_with_a_default_in_the_class_are_those_of_the_wrapped_optimizer() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        inner = Counting(model.parameters(), 0.1)
        inner.factor, inner.num_updates = 0.7, 5
        optimizer = wrap(model, comm, lambda _: inner)
        train(model, optimizer, comm, range(3))
        assert optimizer.num_updates == inner.num_updates == 8
        assert Counting.num_updates == 0

    on_ranks(2, body)


def test_scaler_of_a_dropped_optimizer_serves_the_next_one_and_can_be_copied() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model, scaler = make_model(), torch.amp.GradScaler("cpu", init_scale=4.0)
        for step in range(2):
            optimizer = wrap(model, comm, compression=top_k(), scaler=scaler)
            scaler.scale(loss_of(model, step, comm.rank)).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            del optimizer
        for copied in (copy.deepcopy(scaler), pickle.loads(pickle.dumps(scaler))):
            assert copied.unscale_.__self__ is copied

    on_ranks(2, body)


def test_parameter_frozen_after_wrapping_does_not_move() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        plain = functools.partial(torch.optim.SGD, lr=0.1)
        optimizer = wrap(model, comm, plain, compression=top_k())
        train(model, optimizer, comm, range(3))
        frozen = model.get_parameter("3.weight")
        frozen.requires_grad_(False)
        before, pending = frozen.clone(), residuals_of(optimizer)["3.weight"]
        assert bool(pending.any())
        train(model, optimizer, comm, range(3, 6))
        assert torch.equal(frozen, before)
        assert torch.equal(residuals_of(optimizer)["3.weight"], pending)

    on_ranks(2, body)


def test_parameter_that_is_never_used_ends_the_status_of_each_step() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = Branches()
        optimizer = wrap(model, comm)
        for step in range(12):
            optimizer.zero_grad()
            model(make_batch(step, comm.rank)[0][:, :6], both=False).backward()
            optimizer.step()
        assert exchange_of(optimizer)._kinds.settled

    on_ranks(2, body)
