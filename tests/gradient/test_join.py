"""Ranks that run out of batches: the others go on, and all end with the same parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from tests.gradient.training import (
    COMPRESSIONS,
    assert_all_equal,
    feedback_of,
    loss_of,
    make_model,
    on_ranks,
    top_k,
    trained,
    vector_of,
    wrap,
)

BATCHES = (5, 0, 2)


def optimizer_of(name: str) -> Any:
    """Return a maker of an optimizer."""
    if name == "adam":
        return lambda p: torch.optim.Adam(p, lr=0.01)
    return lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)


def scheduler_of(name: str, optimizer: Any) -> Any:
    """Return a scheduler that is stepped batch by batch."""
    if name == "cycle":
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=20)
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)


def trained_unevenly(
    comm: LoopbackCommunicator,
    batches: Sequence[int],
    optimizer_name: str = "sgd",
    scheduler_name: str | None = None,
    **options: Any,
) -> tuple[Tensor, int]:
    """Train, and return the parameters and what `join` returned."""
    model = make_model()
    optimizer = wrap(model, comm, optimizer_of(optimizer_name), uneven_batches=True, **options)
    scheduler = None if scheduler_name is None else scheduler_of(scheduler_name, optimizer)
    for step in range(batches[comm.rank]):
        optimizer.zero_grad()
        loss_of(model, step, comm.rank).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    last = optimizer.join()
    return vector_of(model), last


def trained_plainly_unevenly(
    batches: Sequence[int], optimizer_name: str, scheduler_name: str | None, op: str
) -> Tensor:
    """Train one process on the mean or sum over the ranks that have a batch."""
    model = make_model()
    optimizer = optimizer_of(optimizer_name)(model.parameters())
    scheduler = None if scheduler_name is None else scheduler_of(scheduler_name, optimizer)
    for step in range(max(batches)):
        optimizer.zero_grad()
        active = [rank for rank, count in enumerate(batches) if step < count]
        for rank in active:
            (loss_of(model, step, rank) / (len(active) if op == "Average" else 1)).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return vector_of(model)


@pytest.mark.parametrize("op", ["Average", "Sum"])
@pytest.mark.parametrize("scheduler", [None, "exponential", "cycle"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_uneven_batches_equal_one_process_with_the_active_ranks(
    optimizer: str, scheduler: str | None, op: str
) -> None:
    expected = trained_plainly_unevenly(BATCHES, optimizer, scheduler, op)
    for compression in (hvs.Compression.none, top_k(1.0, value_dtype=torch.float32)):
        results = on_ranks(
            3,
            lambda comm, c=compression: trained_unevenly(
                comm, BATCHES, optimizer, scheduler, op=op, compression=c
            ),
        )
        assert_all_equal([vector for vector, _ in results])
        assert [last for _, last in results] == [0, 0, 0]
        torch.testing.assert_close(results[0][0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("momentum", ["post", "dgc"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_compression_ends_with_the_same_bits_on_all_ranks(
    compression: str, momentum: Any
) -> None:
    results = on_ranks(
        3,
        lambda comm: trained_unevenly(
            comm,
            BATCHES,
            scheduler_name="exponential",
            compression=COMPRESSIONS[compression],
            momentum=momentum,
            clip_norm=0.5,
            telemetry_every=1,
        ),
    )
    assert_all_equal([vector for vector, _ in results])


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_even_batches_need_no_join_and_are_not_changed_by_it(compression: str) -> None:
    options = {"compression": COMPRESSIONS[compression]}
    results = on_ranks(2, lambda comm: trained_unevenly(comm, (5, 5), **options))
    expected = on_ranks(2, lambda comm: trained(comm, optimizer_of("sgd"), **options))
    assert_all_equal([*(vector for vector, _ in results), *expected])
    assert results[0][1] == results[1][1]  # all ranks learn the same


def test_rank_without_batches_sends_nothing_and_keeps_its_residual() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, uneven_batches=True, compression=top_k())
        for step in range(2 + 3 * comm.rank):
            optimizer.zero_grad()
            loss_of(model, step, comm.rank).backward()
            optimizer.step()
        before = {name: each.residual.clone() for name, each in feedback_of(optimizer).items()}
        assert any(bool(each.any()) for each in before.values())
        optimizer.join()
        for name, each in feedback_of(optimizer).items():
            assert torch.equal(each.residual, before[name])

    on_ranks(2, body)


def test_training_may_go_on_after_all_ranks_have_joined() -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        model = make_model()
        optimizer = wrap(model, comm, "adam", uneven_batches=True, compression=top_k())
        for epoch in range(3):
            for step in range((epoch + comm.rank) % 3):
                optimizer.zero_grad()
                loss_of(model, 10 * epoch + step, comm.rank).backward()
                optimizer.step()
            optimizer.join()
        return vector_of(model)

    assert_all_equal(on_ranks(3, body))


def test_sparse_rows_of_the_active_ranks_are_averaged() -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        embedding = nn.Embedding(20, 2, sparse=True)
        nn.init.zeros_(embedding.weight)
        make = lambda p: torch.optim.SGD(p, lr=1.0)  # noqa: E731
        optimizer = wrap(embedding, comm, make, uneven_batches=True)
        for _ in range(BATCHES[comm.rank]):
            optimizer.zero_grad()
            embedding(torch.tensor([3])).sum().backward()
            optimizer.step()
        optimizer.join()
        return embedding.weight.detach()

    results = on_ranks(3, body)
    assert_all_equal(results)
    # Each of 5 steps has a mean of 1, whether one rank or two take part
    assert results[0][3].tolist() == [-5.0, -5.0]
    assert int(results[0].count_nonzero()) == 2


def test_join_without_uneven_batches_raises() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        optimizer = wrap(make_model(), comm)
        with pytest.raises(
            RuntimeError, match="join: expected an optimizer that was made with unev"
        ):
            optimizer.join()

    on_ranks(2, body)


def test_join_between_backward_and_step_raises() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, uneven_batches=True)
        loss_of(model, 0, comm.rank).backward()
        with pytest.raises(RuntimeError, match="join: expected no gradients that await step"):
            optimizer.join()

    on_ranks(2, body)


def test_closure_with_uneven_batches_raises_before_it_runs() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, uneven_batches=True)
        with pytest.raises(RuntimeError, match="step: expected no closure with uneven_batches"):
            optimizer.step(lambda: pytest.fail("the closure ran"))

    on_ranks(2, body)


def test_join_of_one_rank_returns_at_once() -> None:
    assert on_ranks(1, lambda comm: trained_unevenly(comm, (3,))[1]) == [0]


def test_rank_without_batches_raises_with_the_others() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, uneven_batches=True, compression=top_k())
        if comm.rank == 0:
            (loss_of(model, 0, 0) * float("nan")).backward()
        act = optimizer.step if comm.rank == 0 else optimizer.join
        with pytest.raises(hvs.NonFiniteGradientError, match="on rank 0"):
            act()

    on_ranks(2, body)


@pytest.mark.parametrize("compression", [*COMPRESSIONS.keys() - {"fp16"}])
def test_scaled_losses_and_uneven_batches_train_as_unscaled_ones(compression: str) -> None:
    options = {"compression": COMPRESSIONS[compression]}

    def body(comm: LoopbackCommunicator, overflow: bool) -> tuple[Tensor, float]:
        model = make_model()
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=2)
        optimizer = wrap(
            model, comm, optimizer_of("sgd"), uneven_batches=True, scaler=scaler, **options
        )
        for step in range(BATCHES[comm.rank]):
            optimizer.zero_grad()
            factor = float("inf") if overflow and step == 4 else 1.0
            scaler.scale(loss_of(model, step, comm.rank) * factor).backward()
            scaler.step(optimizer)
            scaler.update()
        optimizer.join()
        return vector_of(model), scaler.get_scale()

    def expected(batches: tuple[int, ...]) -> list[Tensor]:
        return [each for each, _ in on_ranks(3, lambda c: trained_unevenly(c, batches, **options))]

    for overflow, batches, scale in [(False, BATCHES, 2.0**10), (True, (4, 0, 2), 2.0**9)]:
        results = on_ranks(3, lambda comm, o=overflow: body(comm, o))
        assert_all_equal([*(vector for vector, _ in results), *expected(batches)])
        assert [each for _, each in results] == 3 * [scale]
