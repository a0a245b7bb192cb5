"""Scaled losses: residuals free of the scale, and an overflow on one rank skips the step on all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from tests.gradient.training import (
    COMPRESSIONS,
    assert_all_equal,
    exchange_of,
    feedback_of,
    loss_of,
    make_model,
    on_ranks,
    residuals_of,
    top_k,
    train,
    trained,
    vector_of,
    wrap,
)

SCALE = 2.0**12
CASES = [*((each, "post") for each in COMPRESSIONS), ("topk", "dgc"), ("topk-fp32", "dgc")]


def make_scaler(**options: Any) -> Any:
    return torch.amp.GradScaler("cpu", init_scale=SCALE, **options)


def sgd(params: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.1, momentum=0.9)


def scaled_step(
    model: nn.Module, optimizer: Any, scaler: Any, step: int, rank: int, *, recipe: str = "plain"
) -> None:
    """Take a step as users do with a scaler."""
    optimizer.zero_grad()
    scaler.scale(loss_of(model, step, rank)).backward()
    if recipe == "plain":
        scaler.step(optimizer)
    elif recipe == "unscale":
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
    else:
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
    scaler.update()


@pytest.mark.parametrize("recipe", ["plain", "unscale", "horovod"])
@pytest.mark.parametrize(("compression", "momentum"), [each for each in CASES if each[0] != "fp16"])
def test_scale_of_a_power_of_two_changes_no_bit(
    compression: str, momentum: Any, recipe: str
) -> None:
    options = {"compression": COMPRESSIONS[compression], "momentum": momentum}

    def body(comm: LoopbackCommunicator) -> Tensor:
        model, scaler = make_model(), make_scaler(growth_interval=2)
        optimizer = wrap(model, comm, sgd, scaler=scaler, **options)
        for step in range(5):
            scaled_step(model, optimizer, scaler, step, comm.rank, recipe=recipe)
        assert scaler.get_scale() == SCALE * 4
        return vector_of(model)

    results = on_ranks(2, body)
    assert_all_equal([*results, *on_ranks(2, lambda comm: trained(comm, sgd, **options))])


def kept(optimizer: Any) -> dict[str, Tensor]:
    """Return copies of residuals and velocities."""
    found = residuals_of(optimizer)
    for name, each in feedback_of(optimizer).items():
        if each.velocity is not None:
            found[f"velocity of {name}"] = each.velocity.clone()
    return found


def overflowing_step(
    model: Any, optimizer: Any, scaler: Any, comm: LoopbackCommunicator, recipe: str
) -> None:
    """Take a step in which one row of one gradient of rank 1 is Inf."""

    def overflow(grad: Tensor) -> Tensor:
        return grad.index_fill(0, torch.tensor([2]), float("inf")) if comm.rank == 1 else grad

    hook = model[3].weight.register_hook(overflow)
    scaled_step(model, optimizer, scaler, 3, comm.rank, recipe=recipe)
    hook.remove()


@pytest.mark.parametrize("recipe", ["plain", "unscale", "horovod"])
@pytest.mark.parametrize(("compression", "momentum"), CASES)
def test_overflow_on_one_rank_skips_the_step_on_all(
    compression: str, momentum: Any, recipe: str
) -> None:
    options = {"compression": COMPRESSIONS[compression], "momentum": momentum}

    def body(comm: LoopbackCommunicator) -> Tensor:
        model, scaler = make_model(), make_scaler()
        optimizer = wrap(model, comm, sgd, scaler=scaler, **options)
        for step in range(3):
            scaled_step(model, optimizer, scaler, step, comm.rank, recipe=recipe)
        before, weights = kept(optimizer), vector_of(model)
        overflowing_step(model, optimizer, scaler, comm, recipe)
        assert scaler.get_scale() == SCALE / 2
        assert torch.equal(vector_of(model), weights)
        for name, tensor in kept(optimizer).items():
            assert torch.equal(tensor, before[name])
        assert not exchange_of(optimizer).is_pending
        for step in range(4, 7):
            scaled_step(model, optimizer, scaler, step, comm.rank, recipe=recipe)
        return vector_of(model)

    def without_the_step(comm: LoopbackCommunicator) -> Tensor:
        return trained(comm, sgd, steps=[0, 1, 2, 4, 5, 6], **options)

    results = on_ranks(3, body)
    assert_all_equal(results)
    if compression != "fp16":  # which rounds scaled gradients otherwise
        # The skipped step has left nothing behind
        assert_all_equal([*results, *on_ranks(3, without_the_step)])


def test_step_without_the_scaler_skips_an_overflow_too() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model, scaler = make_model(), make_scaler()
        optimizer = wrap(model, comm, compression=top_k(), scaler=scaler)
        weights = vector_of(model)
        loss = loss_of(model, 0, comm.rank)
        (loss * (float("inf") if comm.rank else 1.0)).backward()
        assert optimizer.step() is None
        assert torch.equal(vector_of(model), weights)

    on_ranks(2, body)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("recipe", ["plain", "unscale"])
@pytest.mark.parametrize("num_steps_before", [0, 1])
def test_recipe_that_needs_the_scaler_raises_without_it(
    num_steps_before: int, recipe: str, compression: str
) -> None:
    """Torch's unscaling changes no version counter: nothing but its question gives it away."""

    def body(comm: LoopbackCommunicator) -> None:
        model, scaler = make_model(), make_scaler()
        optimizer = wrap(model, comm, compression=COMPRESSIONS[compression])
        train(model, optimizer, comm, range(num_steps_before))
        with pytest.raises(RuntimeError, match="GradScaler.step: expected a scaler that the opti"):
            scaled_step(model, optimizer, scaler, 1, comm.rank, recipe=recipe)

    on_ranks(2, body)


@pytest.mark.parametrize("compression", ["none", "bf16"])
def test_horovods_recipe_works_without_the_scaler_where_nothing_is_kept(compression: str) -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        model, scaler = make_model(), make_scaler()
        optimizer = wrap(model, comm, compression=COMPRESSIONS[compression])
        for step in range(5):
            scaled_step(model, optimizer, scaler, step, comm.rank, recipe="horovod")
        return vector_of(model)

    expected = on_ranks(2, lambda comm: trained(comm, compression=COMPRESSIONS[compression]))
    assert_all_equal([*on_ranks(2, body), *expected])


def test_disabled_scaler_hides_no_fault() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model, scaler = make_model(), make_scaler(enabled=False)
        optimizer = wrap(model, comm, compression=top_k(), scaler=scaler)
        scaled_step(model, optimizer, scaler, 0, comm.rank)
        optimizer.zero_grad()
        (loss_of(model, 1, comm.rank) * (float("nan") if comm.rank else 1.0)).backward()
        with pytest.raises(hvs.NonFiniteGradientError, match="on rank 1"):
            scaler.step(optimizer)

    on_ranks(2, body)


@pytest.mark.parametrize("recipe", ["plain", "unscale", "horovod"])
@pytest.mark.parametrize("size", [1, 2])
def test_norm_that_is_clipped_is_that_of_unscaled_gradients(size: int, recipe: str) -> None:
    whole = top_k(1.0, value_dtype=torch.float32)

    def body(comm: LoopbackCommunicator) -> Tensor:
        model, scaler = make_model(), make_scaler()
        optimizer = wrap(model, comm, sgd, compression=whole, scaler=scaler, clip_norm=0.05)
        for step in range(3):
            scaled_step(model, optimizer, scaler, step, comm.rank, recipe=recipe)
        return vector_of(model)

    expected = on_ranks(
        size,
        lambda comm: trained(comm, sgd, compression=whole, clip_norm=0.05, steps=range(3)),
    )
    for got in on_ranks(size, body):
        torch.testing.assert_close(got, expected[0], rtol=1e-5, atol=1e-6)


def test_overflow_is_seen_by_a_rank_without_gradients() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model, scaler = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)]), make_scaler()
        optimizer = wrap(model, comm, compression=top_k(), scaler=scaler)
        for factor in (1.0, float("inf")):
            optimizer.zero_grad()
            if comm.rank == 1:
                scaler.scale(model[0](torch.ones(1, 3)).sum() * factor).backward()
            else:
                scaler.scale(torch.ones(()))  # a scaler steps after it has scaled something
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == SCALE / 2

    on_ranks(2, body)


@pytest.mark.parametrize("set_to_none", [False, True])
def test_overflow_of_a_sparse_gradient_leaves_it_sparse(set_to_none: bool) -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        embedding, scaler = nn.Embedding(20, 2, sparse=True), make_scaler()
        nn.init.ones_(embedding.weight)
        optimizer = wrap(
            embedding,
            comm,
            lambda p: torch.optim.SGD(p, lr=0.1),
            compression=top_k(),
            scaler=scaler,
        )
        for factor in (1.0, float("inf"), 1.0):
            optimizer.zero_grad(set_to_none=set_to_none)
            loss = embedding(torch.tensor([comm.rank, 3])).sum()
            scaler.scale(loss * (factor if comm.rank else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
        return embedding.weight.detach()

    results = on_ranks(2, body)
    assert_all_equal(results)
    assert bool(results[0].isfinite().all())
    torch.testing.assert_close(results[0][3], torch.full((2,), 1 - 0.2))


def test_scale_is_read_once_a_step() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model, scaler = make_model(), make_scaler()
        optimizer = wrap(model, comm, scaler=scaler, compression=top_k())
        read, get_scale = [], scaler.get_scale
        scaler.get_scale = lambda: read.append(get_scale()) or read[-1]
        for step in range(3):
            read.clear()
            scaled_step(model, optimizer, scaler, step, comm.rank)
            assert read == [SCALE], step

    on_ranks(2, body)
