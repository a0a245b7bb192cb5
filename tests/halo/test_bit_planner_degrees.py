"""Bits by in-degree, whose base may follow the loss: all ranks agree, in every epoch."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.comm.protocol import Handle
from horovod_sylvie.halo.loss_trend import LossTrend
from tests.halo.on_partitions import WatchedCommunicator, run_on_partitions
from tests.halo.test_bit_planner import GRAPH, epoch, planner_of, rows_of


@pytest.mark.parametrize("base", [1, 2, 4, 8])
def test_bits_by_degree_follow_the_quantiles(tmp_path: Path, base: int) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        halo = hvs.HaloExchange(part, bits=hvs.DegreeBits(base=base), comm=comm)
        epoch(halo, part)
        epoch(halo, part)
        planner = halo.parts.bits
        assert planner is not None and planner.version == 1  # planned once: degrees stay
        sent = planner.tables["b", "forward"].sent
        degrees = part.in_weight[torch.unique(part.send_index)]
        widths = [bits for bits in (1, 2, 4, 8) if bits >= base]
        counts = [int((sent == bits).sum()) for bits in widths]
        assert sum(counts) == len(sent) and max(counts) - min(counts) <= 1
        for low, high in pairwise(widths):
            assert degrees[sent == low].max() <= degrees[sent == high].min()

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_base_that_follows_the_loss_changes_on_all_ranks_at_once(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> list[int]:
        halo = hvs.HaloExchange(part, bits=hvs.DegreeBits(adapt=True), comm=comm)
        planner = halo.parts.bits
        assert planner is not None and planner.trend is not None
        bases = []
        for number in range(25):
            x = rows_of(part).requires_grad_()
            halo.extend(x, layer="a", training=True).sum().backward()
            halo.record_loss(torch.tensor(1.0 + 0.5**number + comm.rank))  # slower and slower
            halo.end_epoch()
            bases.append(planner.trend.base)
        return bases

    results = run_on_partitions(GRAPH, tmp_path, 3, body)
    assert results[0] == results[1] == results[2]
    assert results[0][0] == 1 and results[0][-1] > 1


def loss_of(number: int) -> float:
    """Return losses of epochs that fall more and more slowly."""
    return 1.0 + 0.5**number


@pytest.mark.parametrize("every", [1, 2, 3, 4])
def test_rows_get_each_base_that_the_loss_asks_for(tmp_path: Path, every: int) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        halo = hvs.HaloExchange(part, bits=hvs.DegreeBits(adapt=True, every=every), comm=comm)
        planner = planner_of(halo)
        trend, versions = LossTrend(), 1
        for number in range(42):
            base = trend.base
            # "b" is not called in the epochs of some changes; they count for it all the same
            layers = "ab" if number in (0, 41) else "a"
            x = rows_of(part).requires_grad_()
            extended = [halo.extend(x, layer=layer, training=True) for layer in layers]
            torch.stack(extended).sum().backward()
            halo.record_loss(torch.tensor(loss_of(number) * (1 + comm.rank), dtype=torch.float64))
            halo.end_epoch()
            trend = trend.observe(6 * loss_of(number), may_change=number % every == 0)
            versions += trend.base != base
            assert planner.version == versions
            assert len(planner.tables) == 4
            for tables in planner.tables.values():
                assert int(tables.sent.min()) == int(tables.received.min()) == trend.base
        assert trend.base == 8 and versions == 4

    run_on_partitions(GRAPH, tmp_path, 3, body)


class LossCommunicator(WatchedCommunicator):
    """Keep the handles of the losses."""

    def __init__(self, inner: LoopbackCommunicator) -> None:
        super().__init__(inner)
        self.losses: list[Handle] = []

    def allreduce(self, tensor: torch.Tensor, *, name: str) -> Handle:
        handle = super().allreduce(tensor, name=name)
        if name == "sylvie.halo.loss":
            self.losses.append(handle)
        return handle

    def require_waited(self, count: int) -> None:
        assert len(self.losses) == count
        for handle in self.losses:
            with pytest.raises(RuntimeError, match="was waited on before"):
                handle.wait()


def test_drain_waits_for_the_loss_and_keeps_it(tmp_path: Path) -> None:
    def body(inner: LoopbackCommunicator, part: hvs.Partition) -> None:
        comm = LossCommunicator(inner)
        halo = hvs.HaloExchange(part, bits=hvs.DegreeBits(adapt=True), comm=comm)
        planner = planner_of(halo)
        planner.drain()  # nothing was told: nothing to wait for
        halo.extend(rows_of(part).requires_grad_(), layer="a", training=True).sum().backward()
        halo.record_loss(torch.tensor(100.0))
        planner.drain()
        comm.require_waited(1)
        halo.record_loss(torch.tensor(50.0))
        halo.record_loss(torch.tensor(1.0 + comm.rank))  # the last one counts
        planner.drain()
        planner.drain()
        comm.require_waited(3)
        halo.end_epoch()
        assert planner.trend is not None and planner.trend.smoothed == 3.0

    run_on_partitions(GRAPH, tmp_path, 2, body)


@pytest.mark.parametrize("drains", [False, True])
def test_load_waits_for_the_loss_and_forgets_it(tmp_path: Path, drains: bool) -> None:
    def body(inner: LoopbackCommunicator, part: hvs.Partition) -> None:
        comm = LossCommunicator(inner)
        halo = hvs.HaloExchange(part, bits=hvs.DegreeBits(adapt=True), comm=comm)
        planner = planner_of(halo)
        halo.record_loss(torch.tensor(1.0))
        if drains:
            planner.drain()
        planner.load(0, {}, 0)
        comm.require_waited(1)
        halo.extend(rows_of(part).requires_grad_(), layer="a", training=True).sum().backward()
        with pytest.raises(RuntimeError, match="expected the loss of this epoch"):
            halo.end_epoch()

    run_on_partitions(GRAPH, tmp_path, 2, body)
