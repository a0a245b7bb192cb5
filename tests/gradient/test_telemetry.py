"""What the report says: bytes by the formula, errors in their range, a table and plain numbers."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.gradient.telemetry import Telemetry
from tests.gradient.training import (
    feedback_of,
    loss_of,
    make_model,
    on_ranks,
    top_k,
    train,
    vector_of,
    wrap,
)

# What the model has: matrices of 192, 320 and 100 elements, vectors of 16, 16, 16 and 20
NUM_ELEMENTS, NUM_IN_VECTORS = 680, 68


def reported(comm: LoopbackCommunicator, *, num_steps: int = 3, **options: Any) -> Telemetry:
    model = make_model()
    optimizer = wrap(model, comm, **options)
    train(model, optimizer, comm, range(num_steps))
    report = optimizer.telemetry()
    assert isinstance(report, Telemetry)
    return report


def section(elements: int, selected: int, value_bytes: int) -> int:
    """Return the bytes of a section: 4 a block, indices of 2 to a multiple of 4, values."""
    indices = -(-(4 * -(-elements // 65536) + 2 * selected) // 4) * 4
    return -(-(indices + value_bytes * selected) // 8) * 8


@pytest.mark.parametrize("size", [2, 3, 4])
def test_bytes_of_dense_exchanges_follow_their_formulas(size: int) -> None:
    ring = 2 * (size - 1) / size
    for name, element_bytes in [("none", 4), ("fp16", 2)]:
        compression = getattr(hvs.Compression, name)
        for report in on_ranks(size, lambda comm, c=compression: reported(comm, compression=c)):
            totals = report.as_dict()
            assert report.num_steps == 3
            assert totals["payload_bytes_per_step"] == NUM_ELEMENTS * element_bytes
            wanted = ring * NUM_ELEMENTS * element_bytes
            # Whole bytes of each of 8 parameters
            assert wanted - 8 < totals["bytes_sent_per_step"] <= wanted
            assert totals["selected_fraction"] == 1.0
    padded = -(-NUM_ELEMENTS // size) * size
    (group,) = on_ranks(size, lambda comm: reported(comm, compression=hvs.Compression.bf16))[
        0
    ].groups
    assert (group.kind, group.payload_bytes) == ("Bf16", 2 * padded)
    assert group.bytes_sent == 4 * padded * (size - 1) // size


@pytest.mark.parametrize("value_dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [2, 3])
def test_bytes_of_sparse_exchanges_follow_their_formula(
    size: int, value_dtype: torch.dtype
) -> None:
    policy = top_k(0.1, value_dtype=value_dtype)
    for report in on_ranks(size, lambda comm: reported(comm, compression=policy)):
        by_name = {group.name: group for group in report.groups}
        for name, elements in [("0.weight", 192), ("3.weight", 320), ("5.weight", 100)]:
            group, selected = by_name[name], math.ceil(0.1 * elements)
            assert (group.kind, group.num_elements) == ("TopK", elements)
            assert group.num_selected == selected
            nbytes = 64 + section(elements, selected, value_dtype.itemsize)
            assert group.payload_bytes == -(-nbytes // 512) * 512
            assert group.bytes_sent == (size - 1) * group.payload_bytes
        (fused,) = [group for group in report.groups if group.kind == "Fused"]
        assert fused.payload_bytes == 4 * NUM_IN_VECTORS
        fraction = (20 + 32 + 10 + NUM_IN_VECTORS) / NUM_ELEMENTS
        assert report.as_dict()["selected_fraction"] == pytest.approx(fraction)


def test_one_rank_costs_nothing() -> None:
    (report,) = on_ranks(1, lambda comm: reported(comm, compression=top_k()))
    assert (report.num_steps, report.groups, report.samples) == (0, (), {})
    assert "0 steps; 0 B sent per step" in str(report)


def test_report_before_the_first_step_is_zero() -> None:
    for report in on_ranks(2, lambda comm: reported(comm, num_steps=0, compression=top_k())):
        assert report.num_steps == 0
        assert report.as_dict()["bytes_sent_per_step"] == 0


def test_nothing_is_sampled_unless_asked() -> None:
    assert on_ranks(2, lambda comm: reported(comm, compression=top_k()))[0].samples == {}


def test_samples_are_those_of_the_newest_sampled_step() -> None:
    report = on_ranks(
        2, lambda comm: reported(comm, num_steps=6, compression=top_k(), telemetry_every=2)
    )[0]
    assert report.samples.keys() == {"0.weight", "3.weight", "5.weight"}
    for name, elements in [("0.weight", 192), ("3.weight", 320), ("5.weight", 100)]:
        assert report.samples[name].step == 4
        assert report.samples[name].density == math.ceil(0.1 * elements) / elements


@pytest.mark.parametrize("op", ["Average", "Sum"])
@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.1}], ids=["", "clipped"])
def test_samples_are_what_their_definitions_say(options: dict[str, Any], op: str) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(
            model,
            comm,
            op=op,
            compression=top_k(value_dtype=torch.float32),
            telemetry_every=1,
            **options,
        )
        train(model, optimizer, comm, range(4))
        before = feedback_of(optimizer)["3.weight"].residual.clone()
        optimizer.zero_grad()
        loss = loss_of(model, 4, comm.rank)
        gradients = torch.autograd.grad(loss, [*model.parameters()], retain_graph=True)
        loss.backward()
        optimizer.step()
        place = [name for name, _ in model.named_parameters()].index("3.weight")
        own = gradients[place].flatten()
        if options:
            norm = torch.cat([each.flatten() for each in gradients]).norm()
            own = own * min(1.0, 0.1 / comm.size ** (op == "Sum") / float(norm))
        sample = optimizer.telemetry().samples["3.weight"]
        residual = feedback_of(optimizer)["3.weight"].residual
        total = before + own
        assert sample.residual_ratio == pytest.approx(float(residual.norm() / own.norm()), rel=1e-3)
        error = float((residual.norm() / total.norm()) ** 2)
        assert sample.error == pytest.approx(error, rel=1e-3)
        left = comm.allreduce(residual, name="test.left").wait()
        whole = comm.allreduce(total, name="test.whole").wait()
        delta = float((left.norm() / whole.norm()) ** 2) / (1 - 32 / 320)
        assert sample.delta == pytest.approx(delta, rel=1e-3)
        assert 0 <= sample.delta <= 1.05  # a random choice would have 1

    on_ranks(3, body)


def test_sampling_changes_no_bit() -> None:
    def body(comm: LoopbackCommunicator, every: int) -> torch.Tensor:
        model = make_model()
        optimizer = wrap(model, comm, compression=top_k(), telemetry_every=every)
        train(model, optimizer, comm)
        return vector_of(model)

    watched, plain = (on_ranks(2, lambda comm, n=n: body(comm, n)) for n in (2, 0))
    assert torch.equal(watched[0], plain[0])
    assert torch.equal(watched[1], plain[1])


def test_sample_at_density_one_has_no_error() -> None:
    whole = top_k(1.0, value_dtype=torch.float32)
    report = on_ranks(2, lambda comm: reported(comm, compression=whole, telemetry_every=1))[0]
    for sample in report.samples.values():
        assert (sample.density, sample.residual_ratio, sample.error, sample.delta) == (1, 0, 0, 0)


def test_report_is_a_table_json_and_scalars() -> None:
    report = on_ranks(2, lambda comm: reported(comm, compression=top_k(), telemetry_every=1))[0]
    header, *lines = str(report).splitlines()
    assert header.split() == [
        "group",
        "kind",
        "elements",
        "selected",
        "sent/step",
        "select",
        "wait",
        "decode",
        "ms",
    ]
    assert len(lines) == 4 + 1 + 3  # groups, totals, samples
    assert any(line.startswith("3.weight ") and " 320 " in line for line in lines)
    assert "3 steps; " in str(report)
    plain = json.loads(json.dumps(report.as_dict()))
    assert plain["num_steps"] == 3
    assert {group["name"] for group in plain["groups"]} == {each.name for each in report.groups}
    assert plain["layers"]["3.weight"]["delta"] == report.samples["3.weight"].delta
    scalars = report.scalars()
    assert scalars["sylvie/delta/3.weight"] == report.samples["3.weight"].delta
    assert all(isinstance(value, float) for value in scalars.values())
