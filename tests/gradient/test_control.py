"""Horovod's protocol around a step: synchronize, skip, accumulate, clear, closures."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from horovod_sylvie.comm.loopback import LoopbackCommunicator
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


def gradients_of(model: nn.Module) -> Tensor:
    """Return a copy of all gradients, in a row."""
    return torch.cat([each.grad.flatten() for each in model.parameters()])


@pytest.mark.parametrize("size", [1, 2])
def test_synchronize_then_skip_equals_step(size: int) -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        model = make_model()
        optimizer = wrap(model, comm, compression=top_k())
        for step in range(5):
            optimizer.zero_grad()
            loss_of(model, step, comm.rank).backward()
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                optimizer.step()
        return vector_of(model)

    expected = on_ranks(size, lambda comm: trained(comm, compression=top_k()))
    assert_all_equal([*on_ranks(size, body), *expected])


@pytest.mark.parametrize("size", [1, 2])
def test_clipping_between_synchronize_and_step_clips_the_reduced_gradient(size: int) -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        model = make_model()
        optimizer = wrap(model, comm, lambda p: torch.optim.SGD(p, 0.1))
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, step, comm.rank).backward()
            optimizer.synchronize()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            with optimizer.skip_synchronize():
                optimizer.step()
        return vector_of(model)

    model = make_model()
    plain = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        plain.zero_grad()
        for rank in range(size):
            (loss_of(model, step, rank) / size).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        plain.step()
    for vector in on_ranks(size, body):
        torch.testing.assert_close(vector, vector_of(model))


def test_synchronize_twice_exchanges_once_and_step_warns() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, op="Sum", compression=top_k())
        loss_of(model, 0, comm.rank).backward()
        optimizer.synchronize()
        gradients, residuals = gradients_of(model), residuals_of(optimizer)
        optimizer.synchronize()
        optimizer.step()
        assert torch.equal(gradients_of(model), gradients)
        for name, residual in residuals_of(optimizer).items():
            assert torch.equal(residual, residuals[name])
        assert optimizer.telemetry().num_steps == 1

    with warnings.catch_warnings(record=True) as caught:  # of all threads
        warnings.simplefilter("always")
        on_ranks(2, body)
    assert len(caught) == 2
    for warning in caught:
        text = "optimizer.step() called without optimizer.skip_synchronize() context after"
        assert str(warning.message).startswith(text)
        assert warning.filename == __file__


def test_zero_grad_between_backward_and_step_raises() -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        model = make_model()
        optimizer = wrap(model, comm, compression=top_k())
        for step in range(5):
            optimizer.zero_grad()
            loss_of(model, step, comm.rank).backward()
            text = r"optimizer.zero_grad\(\) was called after loss.backward\(\) but before"
            with pytest.raises(AssertionError, match=text):
                optimizer.zero_grad()
            optimizer.step()  # nothing was lost
        return vector_of(model)

    expected = on_ranks(2, lambda comm: trained(comm, compression=top_k()))
    assert_all_equal([*on_ranks(2, body), *expected])


@pytest.mark.parametrize("set_to_none", [False, True])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_zero_grad_either_way_trains_alike(compression: str, set_to_none: bool) -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        model = make_model()
        optimizer = wrap(model, comm, compression=COMPRESSIONS[compression])
        for step in range(5):
            optimizer.zero_grad(set_to_none=set_to_none)
            assert all(
                (each.grad is None) == (set_to_none or step == 0) for each in model.parameters()
            )
            loss_of(model, step, comm.rank).backward()
            optimizer.step()
        return vector_of(model)

    expected = on_ranks(2, lambda comm: trained(comm, compression=COMPRESSIONS[compression]))
    assert_all_equal([*on_ranks(2, body), *expected])


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("size", [1, 2])
def test_passes_of_one_step_are_added_up(size: int, compression: str) -> None:
    def body(comm: LoopbackCommunicator, passes: int, setter: bool) -> Tensor:
        model = make_model()
        given = 1 if setter else passes
        optimizer = wrap(
            model, comm, compression=COMPRESSIONS[compression], backward_passes_per_step=given
        )
        if setter:
            optimizer.set_backward_passes_per_step(passes)
        assert optimizer.backward_passes_per_step == passes
        for step in range(3):
            optimizer.zero_grad()
            losses = [loss_of(model, 3 * step + n, comm.rank) for n in range(3)]
            if passes == 1:
                losses = [torch.stack(losses).sum()]
            for loss in losses:
                loss.backward()
            optimizer.step()
        return vector_of(model)

    by_three = on_ranks(size, lambda comm: body(comm, 3, False))
    assert_all_equal([*by_three, *on_ranks(size, lambda comm: body(comm, 3, True))])
    at_once = on_ranks(size, lambda comm: body(comm, 1, False))
    # Another order of addition may select another element
    tolerance = 1e-5 if compression == "none" else 5e-2
    torch.testing.assert_close(by_three[0], at_once[0], rtol=tolerance, atol=tolerance)


def test_more_passes_than_told_raise_in_horovods_words() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, backward_passes_per_step=2)
        for step in range(2):
            optimizer.zero_grad()
            for _ in range(2):
                loss_of(model, step, comm.rank).backward()
            if step == 0:
                optimizer.step()
        text = (
            "Gradients were computed more than backward_passes_per_step times before call to "
            r"step\(\): '[0235].(weight|bias)' has 2. Increase backward_passes_per_step"
        )
        with pytest.raises(AssertionError, match=text):
            loss_of(model, 0, comm.rank).backward()

    on_ranks(2, body)


@pytest.mark.parametrize("passes", [0, -1, True, 1.5, None])
def test_number_of_passes_out_of_range_raises(passes: Any) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        optimizer = wrap(make_model(), comm)
        with pytest.raises(ValueError, match="expected backward_passes_per_step > 0, got"):
            optimizer.set_backward_passes_per_step(passes)
        with pytest.raises(ValueError, match="expected backward_passes_per_step > 0, got"):
            wrap(make_model(), comm, backward_passes_per_step=passes)

    on_ranks(1, body)


def test_number_of_passes_changed_between_backward_and_step_raises() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm)
        loss_of(model, 0, comm.rank).backward()
        with pytest.raises(RuntimeError, match="set_backward_passes_per_step: expected no gradi"):
            optimizer.set_backward_passes_per_step(2)
        optimizer.step()
        optimizer.set_backward_passes_per_step(2)

    on_ranks(2, body)


def test_step_before_all_passes_exchanges_what_is_there() -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        model = make_model()
        optimizer = wrap(model, comm, backward_passes_per_step=3)
        for step in range(5):
            optimizer.zero_grad()
            loss_of(model, step, comm.rank).backward()
            optimizer.step()
        return vector_of(model)

    assert_all_equal([*on_ranks(2, body), *on_ranks(2, trained)])


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_closure_sees_gradients_and_loss_of_all_ranks(size: int, compression: str) -> None:
    def body(comm: LoopbackCommunicator) -> tuple[Tensor, float, float]:
        model = make_model()
        optimizer = wrap(
            model,
            comm,
            lambda p: torch.optim.LBFGS(p, lr=0.5, max_iter=4, line_search_fn="strong_wolfe"),
            compression=COMPRESSIONS[compression],
        )

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, 0, comm.rank)
            loss.backward()
            return loss

        losses = [optimizer.step(closure).item() for _ in range(3)]
        return vector_of(model), losses[0], losses[-1]

    results = on_ranks(size, body)
    assert_all_equal([vector for vector, _, _ in results])
    assert len({first for _, first, _ in results}) == 1
    mean = sum(loss_of(make_model(), 0, rank).item() for rank in range(size)) / size
    assert results[0][1] == pytest.approx(mean, rel=1e-6)
    assert results[0][2] < results[0][1]


def test_gradient_changed_while_it_is_exchanged_raises_with_the_recipe() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm)
        loss_of(model, 0, comm.rank).backward()
        optimizer.step()  # ranks first agree; exchanges start in backward from here on
        optimizer.zero_grad()
        loss_of(model, 1, comm.rank).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        text = (
            f"rank {comm.rank}: the gradients of 0.weight, 0.bias, 2.weight and others were changed"
            " after backward, while they were exchanged. Before you clip or unscale gradients call "
            "optimizer.synchronize()"
        )
        with pytest.raises(RuntimeError, match=re.escape(text)):
            optimizer.step()

    on_ranks(2, body)


def test_state_loaded_between_backward_and_step_forgets_what_is_in_flight() -> None:
    """As an elastic restore does, after an error of communication in backward."""

    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, compression=top_k())
        loss_of(model, 0, comm.rank).backward()
        optimizer.step()
        optimizer.zero_grad()
        state = optimizer.state_dict()
        state["horovod_sylvie"]["tensors"] = residuals = {
            name: tensor.clone() for name, tensor in state["horovod_sylvie"]["tensors"].items()
        }
        loss_of(model, 1, comm.rank).backward()
        optimizer.load_state_dict(state)
        optimizer.zero_grad()  # nothing is pending
        for name, residual in residuals_of(optimizer).items():
            assert torch.equal(residual, residuals[f"residual.{name}"])
        loss_of(model, 2, comm.rank).backward()
        optimizer.step()
        return vector_of(model)

    on_ranks(2, body)
