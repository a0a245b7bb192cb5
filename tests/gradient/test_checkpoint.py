"""Checkpoints of error feedback: resumed to the bit, and consolidated for any number of ranks."""

from __future__ import annotations

import copy
import io
import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from tests.gradient.training import (
    assert_all_equal,
    fill,
    loss_of,
    make_model,
    on_ranks,
    residuals_of,
    top_k,
    train,
    vector_of,
    wrap,
)

KEY = "horovod_sylvie"
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {"compression": hvs.Compression.none},
    "topk": {"compression": top_k()},
    "sum": {"compression": top_k(), "op": "Sum"},
    "warmup": {"compression": top_k(0.01, warmup=hvs.Warmup(steps=6, densities=(0.5, 0.1)))},
    "dgc": {"compression": top_k(), "momentum": "dgc"},
    "rates": {"compression": top_k(residual_units="learning_rate")},
}


def sgd(params: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01)


def make(comm: LoopbackCommunicator, name: str, **more: Any) -> tuple[nn.Module, Any, Any]:
    """Return a model, its wrapped optimizer and a scheduler."""
    model = make_model()
    optimizer = wrap(model, comm, sgd, **OPTIONS[name], **more)
    return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)


def advance(made: tuple[nn.Module, Any, Any], comm: LoopbackCommunicator, steps: range) -> None:
    model, optimizer, scheduler = made
    for step in steps:
        train(model, optimizer, comm, [step])
        scheduler.step()


def saved(made: tuple[nn.Module, Any, Any]) -> bytes:
    file = io.BytesIO()
    torch.save([each.state_dict() for each in made], file)
    return file.getvalue()


def load(made: tuple[nn.Module, Any, Any], raw: bytes) -> None:
    for each, state in zip(made, torch.load(io.BytesIO(raw), weights_only=True), strict=True):
        each.load_state_dict(state)


@pytest.mark.parametrize("name", OPTIONS)
def test_resumed_training_equals_an_uninterrupted_one_bitwise(name: str) -> None:
    def body(comm: LoopbackCommunicator) -> tuple[Tensor, Tensor]:
        whole = make(comm, name)
        advance(whole, comm, range(4))
        raw = saved(whole)
        advance(whole, comm, range(4, 8))
        resumed = make(comm, name)
        load(resumed, raw)
        advance(resumed, comm, range(4, 8))
        return vector_of(whole[0]), vector_of(resumed[0])

    results = on_ranks(2, body)
    assert_all_equal([each for pair in results for each in pair])


@pytest.mark.parametrize("name", ["topk", "sum", "dgc"])
@pytest.mark.parametrize("new_size", [2, 3, 4])
def test_consolidated_state_keeps_what_is_pending_for_any_number_of_ranks(
    new_size: int, name: str
) -> None:
    op = OPTIONS[name].get("op", "Average")

    def pending(residuals: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Return what the ranks would still add to the reduced gradient."""
        total = {key: torch.stack([each[key] for each in residuals]).sum(0) for key in residuals[0]}
        return {k: v / len(residuals) if op == "Average" else v for k, v in total.items()}

    def save(comm: LoopbackCommunicator) -> tuple[dict[str, Tensor], bytes, bytes]:
        made = make(comm, name)
        advance(made, comm, range(4))
        file = io.BytesIO()
        torch.save(made[1].consolidate(), file)
        return residuals_of(made[1]), file.getvalue(), saved(made)

    before = on_ranks(3, save)
    consolidated = before[0][1]
    for _, raw, _ in before[1:]:  # one file will do
        first, other = (
            torch.load(io.BytesIO(each), weights_only=True)[KEY]["tensors"]
            for each in (consolidated, raw)
        )
        assert all(torch.equal(first[key], other[key]) for key in first)

    def resume(comm: LoopbackCommunicator) -> tuple[dict[str, Tensor], Tensor]:
        made = make(comm, name)
        made[0].load_state_dict(torch.load(io.BytesIO(before[0][2]), weights_only=True)[0])
        made[1].load_state_dict(torch.load(io.BytesIO(consolidated), weights_only=True))
        residuals = residuals_of(made[1])
        advance(made, comm, range(4, 6))
        return residuals, vector_of(made[0])

    after = on_ranks(new_size, resume)
    assert_all_equal([vector for _, vector in after])
    expected = pending([each for each, _, _ in before])
    for key, got in pending([each for each, _ in after]).items():
        assert got.any()
        torch.testing.assert_close(got, expected[key], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["topk", "dgc"])
def test_one_file_of_rank_0_starts_the_others_without_residuals_but_alike(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    def body(comm: LoopbackCommunicator, raw: bytes | None) -> Any:
        made = make(comm, name)
        if raw is None:
            advance(made, comm, range(4))
            return saved(made)
        load(made, raw)
        residuals = residuals_of(made[1])
        advance(made, comm, range(4, 7))
        return residuals, vector_of(made[0])

    raw = on_ranks(2, lambda comm: body(comm, None))[0]
    with caplog.at_level(logging.WARNING):
        (kept, first), (dropped, second) = on_ranks(2, lambda comm: body(comm, raw))
    assert all(bool(each.any()) for each in kept.values())
    assert not any(bool(each.any()) for each in dropped.values())
    assert_all_equal([first, second])  # also the velocities, which are the same on all ranks
    (record,) = caplog.records
    text = "rank 1 of 2 starts without residuals, because the checkpoint holds those of rank 0 of 2"
    assert text in record.getMessage()


def test_state_without_our_key_leaves_residuals_as_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        made = make(comm, "topk")
        advance(made, comm, range(2))
        before = residuals_of(made[1])
        state = made[1].state_dict()
        del state[KEY]
        made[1].load_state_dict(state)
        for name, residual in residuals_of(made[1]).items():
            assert torch.equal(residual, before[name])
        advance(made, comm, range(2, 4))

    with caplog.at_level(logging.WARNING):
        on_ranks(2, body)
    assert "the loaded state has no residuals; they stay as they are" in caplog.text


@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_what_all_ranks_have_pending_joins_the_first_gradient_of_one_rank(op: str) -> None:
    def save(comm: LoopbackCommunicator) -> tuple[dict[str, Any], dict[str, Tensor]]:
        made = make(comm, "topk", op=op)
        advance(made, comm, range(2))
        return copy.deepcopy(made[1].consolidate()), residuals_of(made[1])

    saved = on_ranks(3, save)

    def resume(comm: LoopbackCommunicator) -> None:
        model, optimizer, _ = make(comm, "topk", op=op)
        optimizer.load_state_dict(saved[0][0])
        loss_of(model, 2, 0).backward()
        own = {name: model.get_parameter(name).grad.clone() for name in saved[0][1]}
        optimizer.synchronize()
        for name, gradient in own.items():
            total = sum(pending[name] for _, pending in saved) / (3 if op == "Average" else 1)
            found = model.get_parameter(name).grad - gradient
            torch.testing.assert_close(found.flatten(), total, atol=1e-6, rtol=1e-4)
        with optimizer.skip_synchronize():
            optimizer.step()
        optimizer.zero_grad()
        loss_of(model, 2, 0).backward()
        again = {name: model.get_parameter(name).grad.clone() for name in own}
        optimizer.synchronize()  # nothing is left
        assert all(torch.equal(model.get_parameter(name).grad, again[name]) for name in own)

    on_ranks(1, resume)


def test_residuals_of_one_rank_of_several_are_not_dropped_silently_on_one_rank(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def save(comm: LoopbackCommunicator) -> dict[str, Any]:
        made = make(comm, "topk")
        advance(made, comm, range(2))
        return copy.deepcopy(made[1].state_dict())

    state = on_ranks(2, save)[0]
    with caplog.at_level(logging.WARNING):
        on_ranks(1, lambda comm: make(comm, "topk")[1].load_state_dict(state))
    assert "one rank starts without residuals, because the checkpoint holds" in caplog.text


def change(state: dict[str, Any], what: str) -> None:
    ours = state[KEY] = dict(state[KEY])
    tensors = ours["tensors"] = dict(ours["tensors"])
    name = "residual.3.weight"
    if what == "version":
        ours["version"] = 3
    elif what == "missing":
        del ours["op"]
    elif what == "shape":
        tensors[name] = tensors[name][1:]
    elif what == "nan":
        tensors[name] = tensors[name].clone().index_fill_(0, torch.tensor([5]), float("nan"))
    elif what == "kind":
        tensors[name] = 1.0
    else:
        tensors["residual.other"] = tensors[name]


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("version", r"expected version 2 of the 'horovod_sylvie' state, got 3 without \[\]"),
        ("missing", r"got 2 without \['op'\]"),
        ("shape", r"'residual.3.weight' .* \(\(319,\)\) .* which has \(320,\). Use the same model"),
        ("nan", r"'residual.3.weight' .* is not finite or does not fit"),
        ("kind", r"'residual.3.weight' .* \(float\) is not finite or"),
        ("other", r"'residual.other' .* which has no such tensor. Use the same model and compre"),
    ],
)
def test_state_that_does_not_fit_raises_and_changes_nothing(what: str, text: str) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        made = make(comm, "topk")
        advance(made, comm, range(2))
        state = made[1].state_dict()
        state["param_groups"] = [state["param_groups"][0] | {"lr": 123.0}]
        change(state, what)
        before = residuals_of(made[1])
        with pytest.raises(ValueError, match=f"load_state_dict: .*{text}"):
            made[1].load_state_dict(state)
        assert made[1].param_groups[0]["lr"] != 123.0
        for name, residual in residuals_of(made[1]).items():
            assert torch.equal(residual, before[name])

    on_ranks(2, body)


def test_state_of_a_sparsified_run_raises_in_a_dense_one() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        state = make(comm, "topk")[1].state_dict()
        with pytest.raises(ValueError, match="Use the same model and compression, or drop state"):
            make(comm, "none")[1].load_state_dict(state)

    on_ranks(2, body)


@pytest.mark.parametrize("momentum", ["post", "dgc"])
def test_embedding_with_sparse_gradients_is_resumed(momentum: Any) -> None:
    def words(comm: LoopbackCommunicator) -> tuple[nn.Module, Any]:
        model = nn.Sequential(nn.Embedding(30, 4, sparse=True), nn.Linear(4, 6))
        fill(model)
        make_sgd = lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)  # noqa: E731
        return model, wrap(model, comm, make_sgd, compression=top_k(), momentum=momentum)

    def steps(model: nn.Module, optimizer: Any, rank: int, numbers: range) -> None:
        for step in numbers:
            optimizer.zero_grad()
            model(torch.tensor([step, 7 + rank])).square().sum().backward()
            optimizer.step()

    def body(comm: LoopbackCommunicator) -> tuple[Tensor, Tensor]:
        model, optimizer = words(comm)
        steps(model, optimizer, comm.rank, range(3))
        state = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        steps(model, optimizer, comm.rank, range(3, 6))
        other, resumed = words(comm)
        other.load_state_dict(state[0])
        resumed.load_state_dict(state[1])
        steps(other, resumed, comm.rank, range(3, 6))
        return vector_of(model), vector_of(other)

    assert_all_equal([each for pair in on_ranks(2, body) for each in pair])
