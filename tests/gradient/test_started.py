"""Large groups are started in a thread of their own: the same bits, the same errors."""

from __future__ import annotations

import gc
import math
import threading
import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.gradient import started
from horovod_sylvie.gradient.exchange import Step
from horovod_sylvie.gradient.selected_exchange import SelectedExchange
from tests.gradient.training import (
    NUM_CLASSES,
    NUM_FEATURES,
    assert_all_equal,
    exchange_of,
    fill,
    loss_of,
    on_ranks,
    residuals_of,
    top_k,
    train,
    vector_of,
    wrap,
)

THREAD = "sylvie-select"


def make_wide_model() -> nn.Sequential:
    """Make a model with one layer that is worth a thread, and two that are not."""
    model = nn.Sequential(
        nn.Linear(NUM_FEATURES, 400),
        nn.Tanh(),
        nn.Linear(400, 400),
        nn.Tanh(),
        nn.Linear(400, NUM_CLASSES, bias=False),
    )
    fill(model)
    return model


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """Remember of every start: a parameter, the thread, and how many threads torch uses there."""
    seen = []
    start = SelectedExchange.start

    def watched(self: SelectedExchange, step: Step) -> None:
        thread = threading.current_thread().name
        seen.append((self.selected[0].name, thread, torch.get_num_threads()))
        assert not (thread.startswith(THREAD) and torch.is_grad_enabled())
        start(self, step)

    monkeypatch.setattr(SelectedExchange, "start", watched)
    return seen


def trained(comm: LoopbackCommunicator, **options: Any) -> Tensor:
    """Train, and return the parameters and what is pending, as one vector."""
    model = make_wide_model()
    momentum = options.pop("momentum", "post")
    optimizer = wrap(model, comm, compression=top_k(**options), momentum=momentum)
    train(model, optimizer, comm)
    residuals = residuals_of(optimizer).values()
    return torch.cat([vector_of(model), *(each.flatten() for each in residuals)])


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("momentum", ["post", "dgc"])
@pytest.mark.parametrize("exchange", ["allgather", "two-phase"])
def test_result_does_not_depend_on_where_groups_are_started(
    monkeypatch: pytest.MonkeyPatch,
    places: list[tuple[str, str, int]],
    size: int,
    momentum: str,
    exchange: str,
) -> None:
    options = {"momentum": momentum, "exchange": exchange}
    got = on_ranks(size, lambda comm: trained(comm, **options))
    assert any(thread.startswith(THREAD) for _, thread, _ in places)
    places.clear()
    monkeypatch.setattr(started, "BESIDE_ELEMENTS", math.inf)
    expected = on_ranks(size, lambda comm: trained(comm, **options))
    assert not any(thread.startswith(THREAD) for _, thread, _ in places)
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(one, other)


def test_only_large_groups_that_are_ready_in_backward_are_started_in_the_thread(
    places: list[tuple[str, str, int]],
) -> None:
    on_ranks(2, trained)
    of_large = [thread.startswith(THREAD) for name, thread, _ in places if name == "2.weight"]
    # In the first step ranks agree first, after backward
    assert sorted(of_large) == [False] * 2 + [True] * 8
    assert not any(thread.startswith(THREAD) for name, thread, _ in places if name != "2.weight")


def test_thread_selects_with_as_many_threads_as_backward_has(
    places: list[tuple[str, str, int]],
) -> None:
    before = torch.get_num_threads()
    try:
        for num_threads in (2, 1):
            torch.set_num_threads(num_threads)
            on_ranks(2, trained)
            assert {each for _, _, each in places} == {num_threads}
            places.clear()
    finally:
        torch.set_num_threads(before)


def test_error_in_the_thread_is_raised_by_step_and_residuals_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submit = SelectedExchange.start

    def refuse(self: SelectedExchange, step: Step) -> None:
        submit(self, step)
        if threading.current_thread().name.startswith(THREAD):
            raise MemoryError("no memory left")

    def body(comm: LoopbackCommunicator) -> Tensor:
        model = make_wide_model()
        optimizer = wrap(model, comm, compression=top_k())
        train(model, optimizer, comm, range(2))
        before, weights = residuals_of(optimizer), vector_of(model)
        all_are_here.wait()
        monkeypatch.setattr(SelectedExchange, "start", refuse)
        optimizer.zero_grad()
        loss_of(model, 2, comm.rank).backward()
        with pytest.raises(MemoryError, match="no memory left"):
            optimizer.step()
        all_are_here.wait()
        monkeypatch.setattr(SelectedExchange, "start", submit)
        after = residuals_of(optimizer)
        assert all(torch.equal(before[name], after[name]) for name in before)
        assert torch.equal(weights, vector_of(model))
        train(model, optimizer, comm, range(2, 4))  # nothing is in flight under old names
        return vector_of(model)

    all_are_here = threading.Barrier(2)
    assert_all_equal(on_ranks(2, body))


@pytest.mark.parametrize("then", ["step", "drop", "save"])
def test_backward_does_not_wait_for_the_thread_and_what_needs_its_work_does(
    monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    ended: list[SelectedExchange] = []
    start = SelectedExchange.start

    def held_back(self: SelectedExchange, step: Step) -> None:
        in_thread = threading.current_thread().name.startswith(THREAD)
        assert not in_thread or goes_on.wait(10.0)
        start(self, step)
        if in_thread:
            ended.append(self)

    def body(comm: LoopbackCommunicator) -> Tensor:
        model = make_wide_model()
        optimizer = wrap(model, comm, compression=top_k())
        train(model, optimizer, comm, range(2))
        before = residuals_of(optimizer)
        all_are_here.wait()
        monkeypatch.setattr(SelectedExchange, "start", held_back)
        loss_of(model, 2, comm.rank).backward()
        assert not ended
        all_are_here.wait()
        threading.Timer(0.1, goes_on.set).start()
        exchange = exchange_of(optimizer)
        if then == "drop":
            exchange.drop_step()
        elif then == "save":
            optimizer.state_dict()
        else:
            optimizer.step()
        assert any(each in ended for each in exchange.exchanges)
        after = residuals_of(optimizer)
        is_kept = all(torch.equal(before[name], after[name]) for name in before)
        assert is_kept == (then != "step")
        if then == "save":
            optimizer.step()
        train(model, optimizer, comm, range(3, 5))
        return vector_of(model)

    goes_on, all_are_here = threading.Event(), threading.Barrier(2)
    assert_all_equal(on_ranks(2, body))


def test_thread_ends_with_the_optimizer() -> None:
    def num_threads() -> int:
        return sum(each.name.startswith(THREAD) for each in threading.enumerate())

    def body(comm: LoopbackCommunicator) -> None:
        model = make_wide_model()
        optimizer = wrap(model, comm, compression=top_k())
        train(model, optimizer, comm, range(3))
        assert num_threads() > 0

    gc.collect()
    on_ranks(2, body)
    gc.collect()
    deadline_s = time.monotonic() + 10.0
    while num_threads() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert num_threads() == 0
