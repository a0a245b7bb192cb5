"""The schedule of a step: all or nothing, on every rank, whatever one rank does."""

from __future__ import annotations

import math
import re
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
    make_model,
    on_ranks,
    residuals_of,
    top_k,
    train,
    vector_of,
    velocities_of,
    wrap,
)


def faulty_step(
    model: nn.Module, optimizer: Any, comm: LoopbackCommunicator, place: str, value: float
) -> None:
    """Run backward with a fault in row 1 of a gradient of rank 1."""
    optimizer.zero_grad()
    hook = model.get_parameter(place).register_hook(
        lambda grad: grad.index_fill(0, torch.tensor([1]), value) if comm.rank == 1 else grad
    )
    loss_of(model, 2, comm.rank).backward()
    hook.remove()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("3.weight", "'3.weight' on rank 1 (16 elements)"),
        ("3.bias", "'3.bias' (the sum over ranks)"),
    ],
)
@pytest.mark.parametrize("momentum", ["post", "dgc"])
def test_gradient_that_is_not_finite_raises_on_every_rank_and_training_goes_on(
    momentum: Any, place: str, said: str, value: float
) -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        model = make_model()
        optimizer = wrap(model, comm, compression=top_k(), momentum=momentum)
        train(model, optimizer, comm, range(2))
        before, weights = residuals_of(optimizer), vector_of(model)
        velocities = velocities_of(optimizer)
        faulty_step(model, optimizer, comm, place, value)
        text = f"rank {comm.rank}: Inf or NaN in the gradient of {said} at step 2. No gradient"
        with pytest.raises(hvs.NonFiniteGradientError, match=re.escape(text)):
            optimizer.step()
        assert torch.equal(vector_of(model), weights)
        # Skipping the batch skips all of it, on every rank, to the bit
        for name, residual in residuals_of(optimizer).items():
            assert torch.equal(residual, before[name])
        for name, velocity in velocities_of(optimizer).items():
            assert torch.equal(velocity, velocities[name])
        train(model, optimizer, comm, range(3, 6))
        assert bool(vector_of(model).isfinite().all())
        assert not torch.equal(vector_of(model), weights)
        return vector_of(model)

    assert_all_equal(on_ranks(3, body))


def test_gradients_that_are_not_finite_on_several_ranks_are_all_named() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, compression=top_k())
        (loss_of(model, 0, comm.rank) * (1.0 if comm.rank == 1 else math.nan)).backward()
        with pytest.raises(hvs.NonFiniteGradientError) as caught:
            optimizer.step()
        for name in ("0.weight", "3.weight", "5.weight"):
            assert f"'{name}' on rank 0" in str(caught.value)
            assert f"'{name}' on rank 2" in str(caught.value)
        assert "on rank 1" not in str(caught.value)

    on_ranks(3, body)


@pytest.mark.parametrize("name", ["none", "fp16", "bf16"])
def test_dense_exchange_passes_on_what_is_not_finite(name: str) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, compression=getattr(hvs.Compression, name))
        (loss_of(model, 0, comm.rank) * (math.nan if comm.rank == 1 else 1.0)).backward()
        optimizer.step()
        assert bool(vector_of(model).isnan().all())

    on_ranks(2, body)


OPTIONS: list[tuple[Any, Any, str, str]] = [
    ({"compression": top_k(0.1)}, {"compression": top_k(0.2)}, "density=0.1", "density=0.2"),
    ({"compression": top_k(0.1)}, {}, "compression=TopK(", "compression=NoCompression"),
    ({"op": "Sum"}, {}, "op='Sum'", "op='Average'"),
    ({"clip_norm": 0.5}, {}, "clip_norm=0.5", "clip_norm=None"),
    ({"uneven_batches": True}, {}, "uneven_batches=True", "uneven_batches=False"),
    ({"telemetry_every": 3}, {}, "telemetry_every=3", "telemetry_every=0"),
    ({"groups": 2}, {}, "groups=2", "groups=None"),
    ({"sparse_as_dense": True}, {}, "sparse_as_dense=True", "sparse_as_dense=False"),
    (
        {"compression": top_k(), "momentum": "dgc"},
        {"compression": top_k()},
        "momentum=dgc",
        "momentum=post",
    ),
]


@pytest.mark.parametrize(("first", "second", "one", "other"), OPTIONS, ids=[o[2] for o in OPTIONS])
def test_ranks_of_different_options_all_raise_in_the_first_step(
    first: Any, second: Any, one: str, other: str
) -> None:
    def body(comm: LoopbackCommunicator) -> str:
        model = make_model()
        optimizer = wrap(model, comm, **(first if comm.rank == 0 else second))
        weights = vector_of(model)
        loss_of(model, 0, comm.rank).backward()
        with pytest.raises(hvs.PeerError) as caught:
            optimizer.step()
        assert torch.equal(vector_of(model), weights)
        return str(caught.value)

    for rank, text in enumerate(on_ranks(3, body)):
        assert text.startswith(f"rank {rank}: the ranks would exchange different gradients")
        assert one in text
        assert other in text
        assert "rank 1 has" in text


def test_ranks_of_different_models_all_raise_in_the_first_step() -> None:
    def body(comm: LoopbackCommunicator) -> str:
        model = make_model(dtype=torch.bfloat16 if comm.rank == 1 else torch.float32)
        optimizer = wrap(model, comm, compression=top_k())
        loss_of(model, 0, comm.rank).backward()
        with pytest.raises(hvs.PeerError) as caught:
            optimizer.step()
        return str(caught.value)

    for text in on_ranks(2, body):
        assert "Rank 0 has '0.weight float32[16, 12]" in text
        assert "rank 1 has '0.weight bfloat16[16, 12]" in text


@pytest.mark.parametrize("compression", [hvs.Compression.none, hvs.Compression.bf16, top_k()])
def test_exchange_starts_in_backward_once_ranks_agree(compression: Any) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, compression=compression)
        exchange = exchange_of(optimizer)
        loss_of(model, 0, comm.rank).backward()
        assert [each.cost.num_steps for each in exchange.exchanges] == len(exchange.exchanges) * [0]
        optimizer.step()
        optimizer.zero_grad()
        loss_of(model, 1, comm.rank).backward()
        # Counted when submitted
        assert [each.cost.num_steps for each in exchange.exchanges] == len(exchange.exchanges) * [2]
        optimizer.step()

    on_ranks(2, body)


def test_damaged_payload_raises_and_leaves_the_residual_whole() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, compression=top_k(value_dtype=torch.float32))
        train(model, optimizer, comm, range(2))
        before = residuals_of(optimizer)
        optimizer.zero_grad()
        loss_of(model, 2, comm.rank).backward()
        comm.allreduce(torch.ones(1), name="test.sent").wait()
        if comm.rank == 1:  # what arrives here of rank 0
            with comm._world.changed:
                for round_ in comm._world.rounds.values():
                    if 0 in round_.contributions and round_.contributions[0].kind == "allgather":
                        round_.contributions[0].tensor[100] ^= 4
        comm.allreduce(torch.ones(1), name="test.damaged").wait()
        text = "the payload of rank 0 for gradient group '.*' at step 2 is wrong: checksum"
        with pytest.raises(hvs.PayloadError, match=text):
            optimizer.step()
        for name, residual in residuals_of(optimizer).items():
            assert torch.equal(residual, before[name])

    on_ranks(2, body)
