"""Momentum correction: SGD's momentum moves in front of the selection, and nothing else changes."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.gradient.momentum import MomentumOptions, take_momentum
from tests.gradient.training import (
    assert_all_equal,
    feedback_of,
    fill,
    make_model,
    on_ranks,
    top_k,
    train,
    trained,
    trained_plainly,
    vector_of,
    wrap,
)

WHOLE = top_k(1.0, value_dtype=torch.float32)


def sgd(params: Any, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, **({"lr": 0.1, "momentum": 0.9} | options))


def test_momentum_and_decay_are_taken_from_the_group() -> None:
    group = sgd([torch.ones(2)], weight_decay=0.01).param_groups[0]
    assert take_momentum(group, optimizer_name="SGD") == MomentumOptions(0.9, 0.01)
    assert (group["momentum"], group["weight_decay"], group["lr"]) == (0.0, 0.0, 0.1)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda p: torch.optim.Adam(p), "for momentum='dgc', got Adam. Use torch.optim.SGD("),
        (lambda p: sgd(p, nesterov=True), "got SGD with nesterov, dampening or maximize. Leave"),
        (lambda p: sgd(p, dampening=0.5), "got SGD with nesterov, dampening or maximize. Leave"),
        (lambda p: sgd(p, maximize=True), "got SGD with nesterov, dampening or maximize. Leave"),
        (lambda p: sgd(p, momentum=0.0), "got momentum=0.0 and weight_decay=0. Give SGD a posi"),
    ],
)
def test_optimizer_that_cannot_be_converted_raises_and_stays_whole(make: Any, text: str) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = make(model.parameters())
        before = [dict(group) for group in optimizer.param_groups]
        with pytest.raises(ValueError, match=re.escape(text)):
            wrap(model, comm, lambda _: optimizer, compression=top_k(), momentum="dgc")
        assert optimizer.param_groups == before

    on_ranks(2, body)


def test_one_wrong_group_of_several_leaves_all_of_them_whole() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        first, *others = model.parameters()
        optimizer = sgd([{"params": [first]}, {"params": others, "momentum": 0.0}])
        with pytest.raises(ValueError, match="got momentum=0.0"):
            wrap(model, comm, lambda _: optimizer, compression=top_k(), momentum="dgc")
        assert optimizer.param_groups[0]["momentum"] == 0.9

    on_ranks(2, body)


@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
def test_one_rank_keeps_the_optimizers_own_momentum(weight_decay: float) -> None:
    def make(params: Any) -> torch.optim.Optimizer:
        return sgd(params, weight_decay=weight_decay)

    (got,) = on_ranks(1, lambda comm: trained(comm, make, compression=top_k(), momentum="dgc"))
    assert torch.equal(got, trained_plainly(make))


@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
@pytest.mark.parametrize("groups", [None, 2])
def test_at_density_one_it_would_send_the_velocity_and_clear_it(
    groups: int | None, weight_decay: float
) -> None:
    """All is sent, so all velocities are cleared: sparsified layers are plain SGD then."""

    def body(comm: LoopbackCommunicator) -> dict[str, Tensor]:
        model = make_model()
        optimizer = wrap(
            model,
            comm,
            lambda p: sgd(p, weight_decay=weight_decay),
            compression=WHOLE,
            momentum="dgc",
            groups=groups,
        )
        train(model, optimizer, comm, range(3))
        assert optimizer.param_groups[0]["momentum"] == 0.0
        for feedback in feedback_of(optimizer).values():
            assert not feedback.residual.any()
            assert feedback.velocity is not None
            assert not feedback.velocity.any()
        return dict(model.named_parameters())

    results = on_ranks(2, body)
    for name, parameter in results[0].items():
        assert torch.equal(parameter, results[1][name])


class TwoLayers(nn.Module):
    """A sparsified matrix and a dense vector with gradients that the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.ones(1, 3))
        self.vector = nn.Parameter(torch.ones(3))

    def backward(self, gradient: tuple[float, ...]) -> None:
        ((self.matrix + self.vector) * torch.tensor([gradient])).sum().backward()


def test_two_steps_are_those_computed_by_hand() -> None:
    gradients = [[(8.0, 4.0, 0.0), (0.0, 2.0, 0.0)], [(0.0, 2.0, 6.0), (4.0, 2.0, 0.0)]]

    def body(comm: LoopbackCommunicator) -> list[Tensor]:
        model, weights = TwoLayers(), []
        optimizer = wrap(
            model,
            comm,
            lambda p: sgd(p, lr=0.5, momentum=0.5),
            compression=top_k(0.3, value_dtype=torch.float32),  # K = 1
            momentum="dgc",
        )
        for gradient in gradients[comm.rank]:
            optimizer.zero_grad()
            model.backward(gradient)
            optimizer.step()
            weights += [model.matrix.detach()[0].clone(), model.vector.detach().clone()]
        return weights

    # u = v = g in the first step. Rank 0 sends v[0] = 8, keeps u = v = (0, 4, 0);
    # rank 1 sends v[2] = 6, keeps u = v = (0, 2, 0). Then
    # rank 0: u = (0, 2 + 2, 0), v = (0, 4 + 4, 0), sends 8 at 1;
    # rank 1: u = (4, 1 + 2, 0), v = (4, 2 + 3, 0), sends 5 at 1.
    for first, dense, second, dense_again in on_ranks(2, body):
        assert first.tolist() == [1 - 0.5 * 4, 1, 1 - 0.5 * 3]
        assert second.tolist() == [-1, 1 - 0.5 * 6.5, -0.5]
        # The vector follows SGD on the mean (4, 3, 3), then (2, 2, 0)
        assert dense.tolist() == [1 - 0.5 * 4, 1 - 0.5 * 3, 1 - 0.5 * 3]
        velocity = [0.5 * 4 + 2, 0.5 * 3 + 2, 0.5 * 3]
        expected = [before - 0.5 * u for before, u in zip(dense.tolist(), velocity, strict=True)]
        assert dense_again.tolist() == expected


def test_weight_decay_acts_as_in_a_dense_run() -> None:
    """No gradient but that of decay: what momentum correction makes of it is SGD's own."""

    def body(comm: LoopbackCommunicator) -> list[Tensor]:
        model = TwoLayers()
        optimizer = wrap(
            model,
            comm,
            lambda p: sgd(p, weight_decay=0.25),
            compression=top_k(0.3),
            momentum="dgc",
        )
        for _ in range(5):
            optimizer.zero_grad()
            model.backward((0.0, 0.0, 0.0))
            optimizer.step()
        return [each.detach() for each in model.parameters()]

    model = TwoLayers()
    plain = sgd(model.parameters(), weight_decay=0.25)
    for _ in range(5):
        plain.zero_grad()
        model.backward((0.0, 0.0, 0.0))
        plain.step()
    for results in on_ranks(2, body):
        for got, expected in zip(results, model.parameters(), strict=True):
            torch.testing.assert_close(got, expected.detach())


def test_parameters_that_travel_dense_follow_sgd() -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        make = lambda p: sgd(p, weight_decay=0.05)  # noqa: E731
        dense = top_k(min_elements=10**6)
        return trained(comm, make, compression=dense, momentum="dgc")

    results = on_ranks(2, body)
    assert_all_equal(results)
    expected = trained_plainly(lambda p: sgd(p, weight_decay=0.05), num_ranks=2)
    torch.testing.assert_close(results[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("min_elements", [0, 10**6])
def test_sparse_embedding_keeps_its_momentum(min_elements: int) -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(6, 2, sparse=True)
            fill(self)

    def steps(model: nn.Module, optimizer: Any, ranks: list[int]) -> Tensor:
        for step in range(4):
            optimizer.zero_grad()
            for rank in ranks:
                model.embedding(torch.tensor([step, 5 - rank])).sum().backward()
            optimizer.step()
        return vector_of(model)

    def body(comm: LoopbackCommunicator) -> Tensor:
        model = Words()
        policy = top_k(min_elements=min_elements)
        optimizer = wrap(model, comm, sgd, compression=policy, momentum="dgc")
        return steps(model, optimizer, [comm.rank])

    model = Words()
    # Half the rate for the sum is the rate for the mean
    expected = steps(model, sgd(model.parameters(), lr=0.05), [0, 1])
    for got in on_ranks(2, body):
        torch.testing.assert_close(got, expected)


def test_parameters_added_later_are_refused_and_nothing_is_added() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model, added = make_model(), nn.Parameter(torch.ones(5, 5))
        optimizer = wrap(model, comm, sgd, compression=top_k(), momentum="dgc")
        with pytest.raises(ValueError, match="add_param_group: expected momentum='post', got mom"):
            optimizer.add_param_group({"params": [added]})
        assert len(optimizer.param_groups) == 1

    on_ranks(2, body)


def test_loaded_momentum_of_a_plain_run_is_not_applied_twice() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        plain = sgd(model.parameters())
        optimizer = wrap(model, comm, sgd, compression=top_k(), momentum="dgc")
        optimizer.load_state_dict(plain.state_dict())
        assert optimizer.param_groups[0]["momentum"] == 0.0

    on_ranks(2, body)


def test_state_that_only_one_rank_loads_reaches_the_dense_velocities_of_all() -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        first = make_model()
        optimizer = wrap(first, comm, sgd, compression=top_k(), momentum="dgc")
        train(first, optimizer, comm)
        second = make_model()
        second.load_state_dict(first.state_dict())
        resumed = wrap(second, comm, sgd, compression=top_k(), momentum="dgc")
        if comm.rank == 0:  # and hvd.broadcast_optimizer_state gives the others its parameters
            resumed.load_state_dict(optimizer.state_dict())
        train(second, resumed, comm)
        return vector_of(second)

    assert_all_equal(on_ranks(3, body))
