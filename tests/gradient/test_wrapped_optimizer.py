"""A wrapped optimizer is the user's optimizer: class, state, defaults, hooks and schedulers."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref
from typing import Any

import pytest
import torch
import typing_extensions
from torch import Tensor, nn

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from tests.gradient.training import (
    OPTIMIZERS,
    assert_all_equal,
    exchange_of,
    loss_of,
    make_model,
    on_ranks,
    top_k,
    train,
    vector_of,
    wrap,
)


class Custom(torch.optim.Optimizer):
    """A user's optimizer: its constructor needs an argument that has no default."""

    def __init__(self, params: Any, rate: float) -> None:
        super().__init__(params, {"rate": rate})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for tensor in group["params"]:
                if tensor.grad is not None:
                    tensor.sub_(tensor.grad, alpha=group["rate"])


class CountingSGD(torch.optim.SGD):
    """A user's subclass, with state of its own."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr=lr)
        self.num_steps = 0

    def step(self, closure: Any = None) -> Any:
        self.num_steps += 1
        return super().step(closure)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"num_steps": self.num_steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.num_steps = state_dict["num_steps"]
        super().load_state_dict({key: state_dict[key] for key in ("state", "param_groups")})


@typing_extensions.runtime_checkable
class Optimizable(typing_extensions.Protocol):
    """What trainers such as Lightning's ask an optimizer for; looked up without calling it."""

    param_groups: list[dict[str, Any]]
    defaults: dict[str, Any]
    state: dict[Any, Any]

    def step(self, closure: Any) -> Any: ...
    def state_dict(self) -> dict[str, Any]: ...


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    "make",
    [*OPTIMIZERS.values(), lambda p: Custom(p, 0.1), lambda p: CountingSGD(p, 0.1)],
    ids=[*OPTIMIZERS, "custom", "subclass"],
)
def test_class_is_the_users_with_horovods_module(size: int, make: Any) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        inner = make(model.parameters())
        optimizer = wrap(model, comm, lambda _: inner)
        base = type(inner)
        assert isinstance(optimizer, base)
        assert isinstance(optimizer, torch.optim.Optimizer)
        assert isinstance(optimizer, Optimizable)
        assert type(optimizer).__name__ == base.__name__
        # `hvd.broadcast_optimizer_state` calls the step above this class, by this module's name
        assert optimizer.__module__ == "horovod.torch.optimizer"
        assert type(optimizer).__mro__[1] is base
        assert repr(optimizer) == repr(inner)
        train(model, optimizer, comm, range(2))

    on_ranks(size, body)


def test_user_classes_train_as_the_classes_that_they_imitate() -> None:
    def body(comm: LoopbackCommunicator) -> list[Tensor]:
        vectors = []
        for make in (
            lambda params: torch.optim.SGD(params, lr=0.1),
            lambda params: Custom(params, 0.1),
            lambda params: CountingSGD(params, 0.1),
        ):
            model = make_model()
            train(model, wrap(model, comm, make), comm, range(3))
            vectors.append(vector_of(model))
        return vectors

    for vectors in on_ranks(2, body):
        assert_all_equal(vectors)


def test_state_of_a_users_subclass_is_saved_and_loaded() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, lambda p: CountingSGD(p, 0.1), compression=top_k())
        train(model, optimizer, comm, range(3))
        assert optimizer.num_steps == 3
        state = optimizer.state_dict()
        assert state["num_steps"] == 3
        other = wrap(make_model(), comm, lambda p: CountingSGD(p, 0.1), compression=top_k())
        other.load_state_dict(state)
        assert other.num_steps == 3

    on_ranks(2, body)


def test_state_and_defaults_of_the_optimizer_are_kept() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        inner = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.7)
        loss_of(model, 0, 0).backward()
        inner.step()
        inner.zero_grad()
        before = [inner.state[each]["momentum_buffer"] for each in model.parameters()]
        kept = [each.clone() for each in before]
        optimizer = wrap(model, comm, lambda _: inner)
        after = [optimizer.state[each]["momentum_buffer"] for each in model.parameters()]
        for same, old, new in zip(before, kept, after, strict=True):
            assert new is same
            assert torch.equal(new, old)
        assert optimizer.defaults["lr"] == 0.3
        added = nn.Parameter(torch.ones(3))
        optimizer.add_param_group({"params": [added]})
        assert optimizer.param_groups[1]["lr"] == 0.3
        assert optimizer.param_groups[1]["momentum"] == 0.7
        assert optimizer.param_groups is inner.param_groups

    on_ranks(2, body)


@pytest.mark.parametrize("compression", [hvs.Compression.none, hvs.Compression.bf16, top_k()])
def test_parameters_added_later_are_exchanged(compression: Any) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model, added = make_model(), nn.Parameter(torch.zeros(4, 30))
        optimizer = wrap(model, comm, lambda p: torch.optim.SGD(p, 1.0), compression=compression)
        train(model, optimizer, comm, range(2))
        optimizer.add_param_group({"params": [added], "lr": 0.5})
        for step in range(12):
            optimizer.zero_grad()
            (loss_of(model, step, comm.rank) + (added * (1.0 + comm.rank)).sum()).backward()
            optimizer.step()
        vectors = comm.allgather(
            torch.cat([vector_of(model), added.detach().flatten()])[None], name="test"
        ).wait()
        assert_all_equal(list(vectors))
        if compression == hvs.Compression.none:
            torch.testing.assert_close(added.detach(), torch.full((4, 30), -12 * 0.5 * 1.5))
        assert bool((added != 0).all())

    on_ranks(2, body)


@pytest.mark.parametrize("size", [1, 2])
def test_step_hooks_run_once_for_each_step(size: int) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model, calls = make_model(), []
        inner = torch.optim.Adam(model.parameters())
        inner.register_step_pre_hook(lambda *_: calls.append("inner pre"))
        optimizer = wrap(model, comm, lambda _: inner)
        optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
        optimizer.register_step_post_hook(lambda *_: calls.append("post"))
        train(model, optimizer, comm, range(2))
        assert calls == 2 * ["inner pre", "pre", "post"]

    on_ranks(size, body)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("made", ["before", "after"])
def test_scheduler_made_before_or_after_wrapping_is_followed(made: str, size: int) -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        model = make_model()
        inner = torch.optim.SGD(model.parameters(), lr=0.4)
        if made == "before":
            schedule = torch.optim.lr_scheduler.StepLR(inner, 1, gamma=0.5)
        optimizer = wrap(model, comm, lambda _: inner)
        if made == "after":
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        for step in range(3):
            assert optimizer.param_groups[0]["lr"] == 0.4 / 2**step
            train(model, optimizer, comm, [step])
            schedule.step()  # warns where it sees no step of the optimizer
        return vector_of(model)

    def expected(comm: LoopbackCommunicator) -> Tensor:
        model = make_model()
        optimizer = wrap(model, comm, lambda p: torch.optim.SGD(p, lr=0.4))
        for step in range(3):
            train(model, optimizer, comm, [step])
            optimizer.param_groups[0]["lr"] *= 0.5
        return vector_of(model)

    assert_all_equal([*on_ranks(size, body), *on_ranks(size, expected)])


@pytest.mark.parametrize("act", [copy.deepcopy, copy.copy, pickle.dumps])
def test_copy_of_a_wrapped_optimizer_raises(act: Any) -> None:
    optimizer = on_ranks(1, lambda comm: wrap(make_model(), comm))[0]
    with pytest.raises(TypeError, match=r"SGD: a DistributedOptimizer cannot be pickled or deep-c"):
        act(optimizer)


def test_state_dict_survives_a_file() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, "adam", compression=top_k())
        train(model, optimizer, comm)
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        loaded = torch.load(file, weights_only=True)
        for name, tensor in optimizer.state_dict()["horovod_sylvie"]["tensors"].items():
            assert torch.equal(loaded["horovod_sylvie"]["tensors"][name], tensor)
        # A plain optimizer takes it too
        torch.optim.Adam(model.parameters()).load_state_dict(loaded)

    on_ranks(2, body)


@pytest.mark.parametrize("compression", [hvs.Compression.none, top_k()])
def test_hooks_of_a_dropped_optimizer_do_nothing(compression: Any) -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        model = make_model()
        optimizer = wrap(model, comm, compression=compression)
        train(model, optimizer, comm, range(2))
        exchange = weakref.ref(exchange_of(optimizer))
        # The usual way: under the same name, and nobody collects garbage in between
        optimizer = wrap(model, comm, compression=compression)
        assert exchange() is None
        train(model, optimizer, comm, range(2, 4))
        del optimizer
        loss_of(model, 0, 0).backward()
        loss_of(model, 0, 0).backward()
        return vector_of(model)

    gc.disable()
    try:
        assert_all_equal(on_ranks(2, body))
    finally:
        gc.enable()
