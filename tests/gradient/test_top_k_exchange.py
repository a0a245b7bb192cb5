"""Sparse exchange on ranks: what is sent, what is kept, and what becomes of it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.ops.top_k import restore_selected, section_bytes
from tests.gradient.training import (
    feedback_of,
    loss_of,
    make_model,
    on_ranks,
    residuals_of,
    top_k,
    top_k_exchanges,
    wrap,
)


def record_gradients(model: nn.Module) -> dict[str, Tensor]:
    """Keep a copy of each local gradient; call before the model's optimizer is wrapped."""
    local: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():

        def keep(tensor: Tensor, name: str = name) -> None:
            assert tensor.grad is not None
            local[name] = tensor.grad.clone()

        parameter.register_post_accumulate_grad_hook(keep)
    return local


def sent_by(optimizer: Any) -> dict[str, Tensor]:
    """Read what this rank sent in the last step from its payload, by parameter name."""
    sent = {}
    for exchange in top_k_exchanges(optimizer):
        layout = exchange.layout
        for number, parameter in enumerate(exchange.parameters):
            elements, selected = layout.num_elements[number], layout.num_selected[number]
            nbytes = section_bytes(elements, selected, layout.value_dtype)
            start = layout.offsets[number]
            sent[parameter.name] = torch.zeros(elements)
            restore_selected(
                exchange._payload[start : start + nbytes],
                num_elements=elements,
                k=selected,
                value_dtype=layout.value_dtype,
                residual=sent[parameter.name],
            )
    return sent


@pytest.mark.parametrize("op", ["Average", "Sum"])
@pytest.mark.parametrize("value_dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_step_conserves_mass_to_the_bit(
    dtype: torch.dtype, value_dtype: torch.dtype, op: str
) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model(dtype=dtype)
        local = record_gradients(model)
        optimizer = wrap(model, comm, op=op, compression=top_k(value_dtype=value_dtype))
        for step in range(5):
            before = residuals_of(optimizer)
            optimizer.zero_grad()
            loss_of(model, step, comm.rank).backward()
            optimizer.step()
            sent, after = sent_by(optimizer), residuals_of(optimizer)
            assert sent.keys() == before.keys() == {"0.weight", "3.weight", "5.weight"}
            for name, own in sent.items():
                total = before[name] + local[name].float().flatten()
                assert torch.equal(total.double(), own.double() + after[name].double())
                # and the reduced gradient is the sum of what all ranks sent
                whole = comm.allgather(own[None], name=f"test.{name}").wait()
                scale = 1 / comm.size if op == "Average" else 1.0
                expected = torch.zeros_like(own)
                for each in whole:
                    expected += each * torch.tensor(scale)
                grad = model.get_parameter(name).grad
                assert grad is not None
                assert torch.equal(grad.flatten(), expected.to(dtype))

    on_ranks(3, body)


@pytest.mark.parametrize("passes", [1, 3])
def test_clipped_and_accumulated_gradients_conserve_mass(passes: int) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        local = record_gradients(model)
        optimizer = wrap(
            model, comm, compression=top_k(), clip_norm=0.05, backward_passes_per_step=passes
        )
        for step in range(4):
            before = residuals_of(optimizer)
            optimizer.zero_grad()
            for number in range(passes):
                loss_of(model, 10 * step + number, comm.rank).backward()
            optimizer.step()
            norm = torch.cat([each.double().flatten() for each in local.values()]).norm()
            assert norm > 0.05
            factor = torch.tensor(float(0.05 / (norm + 1e-6)))
            sent, after = sent_by(optimizer), residuals_of(optimizer)
            for name, own in sent.items():
                total = before[name] + local[name].flatten() * factor
                assert torch.equal(total.double(), own.double() + after[name].double())

    on_ranks(2, body)


def test_warmup_changes_density_in_the_same_step_on_every_rank() -> None:
    warmup = hvs.Warmup(steps=4, densities=(0.5, 0.25))

    def body(comm: LoopbackCommunicator) -> list[int]:
        model = make_model()
        optimizer = wrap(model, comm, compression=top_k(0.01, warmup=warmup))
        counts = []
        for step in range(6):
            optimizer.zero_grad()
            loss_of(model, step, comm.rank).backward()
            optimizer.step()
            sent = sent_by(optimizer)["3.weight"]  # 320 elements
            counts.append(int(sent.count_nonzero()))
        return counts

    for counts in on_ranks(2, body):
        assert counts == [160, 160, 80, 80, 4, 4]


class OneMatrix(nn.Module):
    """A matrix whose gradient is what the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 4))

    def backward(self, *gradient: float) -> None:
        (self.weight * torch.tensor([gradient])).sum().backward()


def steps_of_one_matrix(
    comm: LoopbackCommunicator, gradients: list[list[tuple[float, ...]]], rates: list[float], **opts
) -> tuple[list[Tensor], Tensor]:
    """Return the weight after each step, and the residual at the end."""
    model = OneMatrix()
    make = lambda params: torch.optim.SGD(params, lr=rates[0])  # noqa: E731
    compression = top_k(0.25, value_dtype=torch.float32, **opts)  # K = 1
    optimizer = wrap(model, comm, make, compression=compression)
    weights = []
    for own, rate in zip(gradients[comm.rank], rates, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        model.backward(*own)
        optimizer.step()
        weights.append(model.weight.detach().clone()[0])
    return weights, feedback_of(optimizer)["weight"].residual.clone()


GRADIENTS = [[(8.0, 4.0, 0.0, 0.0), (0.0, 0.0, 2.0, 0.0)], [(0.0, 6.0, 4.0, 0.0), (0.0,) * 4]]


def test_two_steps_of_two_ranks_are_those_computed_by_hand() -> None:
    # rank 0 sends 8 at 0, then the 4 at 1; rank 1 sends 6 at 1, then the 4 at 2
    (weights, residual), (again, other) = on_ranks(
        2, lambda comm: steps_of_one_matrix(comm, GRADIENTS, [0.5, 0.25])
    )
    assert weights[0].tolist() == [-0.5 * 4, -0.5 * 3, 0, 0]
    assert weights[1].tolist() == [-2.0, -1.5 - 0.25 * 2, -0.25 * 2, 0]
    assert torch.equal(weights[1], again[1])
    assert residual.tolist() == [0, 0, 2, 0]
    assert other.tolist() == [0, 0, 0, 0]


def test_residual_in_learning_rate_units_is_applied_at_the_rate_that_computed_it() -> None:
    (weights, residual), (again, other) = on_ranks(
        2,
        lambda comm: steps_of_one_matrix(
            comm, GRADIENTS, [0.5, 0.25], residual_units="learning_rate"
        ),
    )
    assert torch.equal(weights[1], again[1])
    # 4 at lr 0.5 is as much as 8 at lr 0.25; the new gradient of 2 is not rescaled
    assert weights[1].tolist() == [-2.0, -1.5 - 0.25 * 4, -0.25 * 4, 0]
    assert residual.tolist() == [0, 0, 2, 0]
    assert other.tolist() == [0, 0, 0, 0]


def test_parameters_below_the_limit_or_of_one_dimension_travel_dense() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        optimizer = wrap(make_model(), comm, compression=top_k(min_elements=200))
        kinds = defaultdict(set)
        for group in optimizer.telemetry().groups:
            kinds[group.kind].add(group.name)
        assert kinds == {"TopK": {"3.weight"}, "Fused": {"5.weight+5.fused"}}

    on_ranks(2, body)
