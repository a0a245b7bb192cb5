"""Bits that are planned while training goes on: the budget holds, and all ranks agree."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.bit_planner import BitPlanner
from horovod_sylvie.halo.bit_tables import BitTables
from horovod_sylvie.halo.message import HEADER_BYTES
from tests.halo.on_partitions import run_on_partitions
from tests.reference_training import make_graph

GRAPH = make_graph()
F = 64


def rows_of(part: hvs.Partition, scale: float = 1.0) -> torch.Tensor:
    """Return rows whose range grows with the node's number."""
    generator = torch.Generator().manual_seed(1)
    whole = torch.rand(part.num_nodes_global, F, generator=generator)
    return (scale * whole * (1 + torch.arange(len(whole)))[:, None])[part.inner_ids]


def epoch(halo: hvs.HaloExchange, part: hvs.Partition, layers: str = "ab") -> torch.Tensor:
    x = rows_of(part).requires_grad_()
    total, extended = torch.zeros(()), torch.zeros(())
    for layer in layers:
        extended = halo.extend(x, layer=layer, training=True)
        total = total + extended.square().sum()
    total.backward()  # type: ignore[no-untyped-call]
    halo.record_loss(total)
    halo.end_epoch()
    return extended.detach()


def planner_of(halo: hvs.HaloExchange) -> BitPlanner:
    planner = halo.parts.bits
    assert planner is not None
    return planner


def row_bytes_sent(halo: hvs.HaloExchange) -> int:
    """Return the bytes of an epoch, without headers."""
    report = halo.last_epoch
    assert report is not None
    return report.traffic.bytes_sent - 4 * (halo.comm.size - 1) * HEADER_BYTES


def test_budget_holds_over_all_ranks_and_is_used(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> tuple[int, int, int]:
        least = (len(part.send_index) + part.num_halo) * 2 * (4 + F // 8)
        total = int(comm.allreduce(torch.tensor([least]), name="least").wait())
        halo = hvs.HaloExchange(part, bits=hvs.BudgetBits(2 * total, every=2), comm=comm)
        errors, sent = [], []
        for _ in range(4):
            extended = epoch(halo, part)
            exact = hvs.HaloExchange(part, hvs.FullPrecision(), comm=comm).extend(
                rows_of(part), layer="x", training=False
            )
            errors.append(float((extended - exact).norm()))
            sent.append(row_bytes_sent(halo))
        assert errors[1] < 0.7 * errors[0]  # the rows that matter get more
        assert halo.parts.bits is not None and halo.parts.bits.version == 2
        return total, sent[1], sent[3]

    results = run_on_partitions(GRAPH, tmp_path, 3, body)
    total = results[0][0]
    for place in (1, 2):
        used = sum(result[place] for result in results)
        assert 1.7 * total < used <= 2 * total


def test_rows_of_greater_weight_and_range_get_no_fewer_bits(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        least = (len(part.send_index) + part.num_halo) * 2 * (4 + F // 8)
        total = int(comm.allreduce(torch.tensor([least]), name="least").wait())
        halo = hvs.HaloExchange(part, bits=hvs.BudgetBits(2 * total, every=1), comm=comm)
        epoch(halo, part)
        planner = halo.parts.bits
        assert planner is not None
        tables = planner.tables["a", "backward"]
        assert isinstance(tables, BitTables)
        # backward, importance is the range of the gradient: 2 x, whose range grows with the id
        order = part.halo_ids.argsort()
        bits = tables.sent[order].long()
        assert int(bits[-1]) > int(bits[0]) and set(bits.tolist()) <= {1, 2, 4, 8}

    run_on_partitions(GRAPH, tmp_path, 2, body)


def planned_bits(
    comm: LoopbackCommunicator, part: hvs.Partition, scales: dict[str, float], loss_factor: float
) -> dict[tuple[str, str], torch.Tensor]:
    """Return the bits of each row, planned after an epoch of layers that scale their rows."""
    least = (len(part.send_index) + part.num_halo) * 2 * (4 + F // 8)
    total = int(comm.allreduce(torch.tensor([least]), name="least").wait())
    halo = hvs.HaloExchange(part, bits=hvs.BudgetBits(2 * total), comm=comm)
    x = rows_of(part).requires_grad_()
    loss = torch.zeros(())
    for layer, scale in scales.items():
        extended = halo.extend(scale * x, layer=layer, training=True) / scale
        loss = loss + extended.square().sum()
    (loss_factor * loss).backward()  # type: ignore[no-untyped-call]
    halo.end_epoch()
    return {key: each.sent for key, each in planner_of(halo).tables.items()}


# Powers of two, so that rows differ by nothing but the factor, to the last bit
@pytest.mark.parametrize(
    ("scale_a", "scale_b", "loss_factor"),
    [
        (1.0, 1.0, 2.0**-30),
        (1.0, 1.0, 2.0**30),
        (2.0**-12, 2.0**-12, 1.0),
        (2.0**12, 2.0**12, 1.0),
        (2.0**12, 2.0**-12, 2.0**-40),
    ],
)
def test_bits_by_budget_do_not_depend_on_units(
    tmp_path: Path, scale_a: float, scale_b: float, loss_factor: float
) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        expected = planned_bits(comm, part, {"a": 1.0, "b": 1.0}, 1.0)
        assert len(expected) == 4
        for sent in expected.values():
            assert len(sent.unique()) > 1  # every layer and direction has a part of the budget
        found = planned_bits(comm, part, {"a": scale_a, "b": scale_b}, loss_factor)
        assert found.keys() == expected.keys()
        for key, sent in expected.items():
            assert torch.equal(found[key], sent), key

    run_on_partitions(GRAPH, tmp_path, 3, body)


def test_budget_below_one_bit_raises_on_every_rank(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        halo = hvs.HaloExchange(part, bits=hvs.BudgetBits(100), comm=comm)
        with pytest.raises(ValueError, match=r"BudgetBits: expected at least \d+ bytes per epoch"):
            epoch(halo, part)

    run_on_partitions(GRAPH, tmp_path, 3, body)


@pytest.mark.parametrize("options", [hvs.BudgetBits(10**6), hvs.DegreeBits(adapt=True, every=3)])
def test_options_text_tells_options_apart(
    tmp_path: Path, options: hvs.BudgetBits | hvs.DegreeBits
) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> str:
        return planner_of(hvs.HaloExchange(part, bits=options, comm=comm)).options_text

    assert run_on_partitions(GRAPH, tmp_path, 2, body) == [str(options)] * 2


def test_loss_that_was_not_told_raises(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        halo = hvs.HaloExchange(part, bits=hvs.DegreeBits(adapt=True), comm=comm)
        x = rows_of(part).requires_grad_()
        halo.extend(x, layer="a", training=True).sum().backward()
        with pytest.raises(RuntimeError, match=r"Call halo.record_loss\(loss\) after each forward"):
            halo.end_epoch()

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_ranks_with_different_plans_of_bits_raise(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        halo = hvs.HaloExchange(part, bits=hvs.DegreeBits(), comm=comm)
        epoch(halo, part)
        planner = halo.parts.bits
        assert planner is not None
        if comm.rank == 1:
            planner.load(
                9,
                {
                    key: BitTables(9, each.sent, each.received)
                    for key, each in planner.tables.items()
                },
                1,
            )
        with pytest.raises(ValueError, match=r"expected topic .* from rank"):
            epoch(halo, part)

    run_on_partitions(GRAPH, tmp_path, 2, body)


@pytest.mark.parametrize("codec", [hvs.FullPrecision(), hvs.Bits(4)])
def test_other_codecs_are_refused(tmp_path: Path, codec: hvs.Codec) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        with pytest.raises(ValueError, match="HaloExchange: expected OneBit for 'codec' with bits"):
            hvs.HaloExchange(part, codec, bits=hvs.DegreeBits(), comm=comm)
        with pytest.raises(TypeError, match="expected BudgetBits, DegreeBits or None for 'bits'"):
            hvs.HaloExchange(part, bits=3, comm=comm)  # type: ignore[arg-type]

    run_on_partitions(GRAPH, tmp_path, 2, body)
