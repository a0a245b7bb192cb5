"""Clipping of the new gradient, before it meets a residual."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.gradient.clipping import clip_factor
from horovod_sylvie.gradient.parameter import ExchangedParameter
from tests.gradient.training import (
    COMPRESSIONS,
    assert_all_equal,
    loss_of,
    make_model,
    on_ranks,
    residuals_of,
    top_k,
    trained,
    vector_of,
    wrap,
)


def parameters_with(*gradients: Tensor | None) -> list[ExchangedParameter]:
    found = []
    for number, gradient in enumerate(gradients):
        tensor = nn.Parameter(torch.zeros_like(torch.ones(2) if gradient is None else gradient))
        tensor.grad = gradient
        found.append(ExchangedParameter(f"p{number}", tensor))
    return found


def test_factor_brings_the_norm_of_all_gradients_to_the_limit() -> None:
    parameters = parameters_with(torch.tensor([3.0]), None, torch.tensor([[4.0]]))
    assert clip_factor(parameters, 1.0, loss_scale=1.0) == pytest.approx(1 / 5, rel=1e-6)
    assert clip_factor(parameters, 1.0, loss_scale=2.0) == pytest.approx(2 / 5, rel=1e-6)
    assert clip_factor(parameters, 6.0, loss_scale=1.0) == 1.0
    assert clip_factor(parameters_with(None), 1.0, loss_scale=1.0) == 1.0


def test_factor_of_a_gradient_that_is_not_finite_leaves_the_fault_alone() -> None:
    for value in (math.nan, math.inf):
        bad = parameters_with(torch.tensor([value]), torch.tensor([1.0]))
        assert clip_factor(bad, 1.0, loss_scale=1.0) == 0.0


def test_norm_of_a_sparse_gradient_counts_each_row_once() -> None:
    embedding = nn.Embedding(4, 1, sparse=True)
    embedding(torch.tensor([1, 1, 1, 2, 2, 2, 2])).sum().backward()
    parameter = ExchangedParameter("words", embedding.weight)
    assert clip_factor([parameter], 1.0, loss_scale=1.0) == pytest.approx(1 / 5, rel=1e-6)


def test_norm_of_half_precision_gradients_does_not_overflow() -> None:
    parameters = parameters_with(torch.full((100,), 60000.0, dtype=torch.float16))
    assert clip_factor(parameters, 1.0, loss_scale=1.0) == pytest.approx(1 / 599_936, rel=1e-3)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_one_rank_clips_as_torch(compression: str) -> None:
    model = make_model()
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(5):
        plain.zero_grad()
        loss_of(model, step, 0).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        plain.step()
    (got,) = on_ranks(
        1, lambda comm: trained(comm, compression=COMPRESSIONS[compression], clip_norm=0.05)
    )
    torch.testing.assert_close(got, vector_of(model), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["Average", "Sum"])
@pytest.mark.parametrize("compression", [*COMPRESSIONS, "whole"])
@pytest.mark.parametrize("size", [2, 3])
def test_what_a_step_adds_has_at_most_the_norm(size: int, compression: str, op: str) -> None:
    """Nothing is left from before in the first step: what is reduced is what was added."""
    compressions = COMPRESSIONS | {"whole": top_k(1.0, value_dtype=torch.float32)}

    def body(comm: LoopbackCommunicator) -> tuple[Tensor, float]:
        model = make_model()
        optimizer = wrap(model, comm, op=op, compression=compressions[compression], clip_norm=0.05)
        loss_of(model, 0, comm.rank).backward()
        optimizer.synchronize()
        gradient = torch.cat([each.grad.flatten() for each in model.parameters()])
        with optimizer.skip_synchronize():
            optimizer.step()
        return vector_of(model), float(gradient.double().norm())

    results = on_ranks(size, body)
    assert_all_equal([vector for vector, _ in results])
    for _, norm in results:
        assert 0 < norm <= 0.05 * 1.004  # bfloat16 and float16 round values up, too
    if compression in ("none", "whole"):  # the bound is not far from what is reached
        assert results[0][1] > 0.02


def test_clipped_training_equals_mean_of_clipped_gradients() -> None:
    model = make_model()
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(4):
        total = [torch.zeros_like(each) for each in model.parameters()]
        for rank in range(2):
            plain.zero_grad()
            loss_of(model, step, rank).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            for number, parameter in enumerate(model.parameters()):
                assert parameter.grad is not None
                total[number] += parameter.grad / 2
        for each, parameter in zip(total, model.parameters(), strict=True):
            parameter.grad = each
        plain.step()
    for compression in (hvs.Compression.none, top_k(1.0, value_dtype=torch.float32)):
        got = on_ranks(
            2,
            lambda comm, c=compression: trained(
                comm, steps=range(4), compression=c, clip_norm=0.05
            ),
        )
        torch.testing.assert_close(got[0], vector_of(model), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_gradient_that_is_not_finite_stays_visible(value: float) -> None:
    def body(comm: LoopbackCommunicator, compression: object) -> None:
        model = make_model()
        optimizer = wrap(model, comm, compression=compression, clip_norm=0.05)
        loss = loss_of(model, 0, comm.rank)
        (loss * (value if comm.rank == 1 else 1.0)).backward()
        if compression == hvs.Compression.none:
            optimizer.synchronize()
            assert not any(bool(each.grad.isfinite().all()) for each in model.parameters())
        else:
            with pytest.raises(hvs.NonFiniteGradientError, match="on rank 1"):
                optimizer.synchronize()
            if comm.rank == 1:
                assert not any(bool(each.any()) for each in residuals_of(optimizer).values())

    on_ranks(2, lambda comm: body(comm, hvs.Compression.none))
    on_ranks(2, lambda comm: body(comm, top_k()))
