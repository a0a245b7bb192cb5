"""Old rows: an oracle for what every epoch computes with, and misuse of epochs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from horovod_sylvie.comm.checked import CheckedCommunicator
from horovod_sylvie.comm.delayed import DelayedCommunicator
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.codec import FullPrecision
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.halo.packed_codec import OneBit
from horovod_sylvie.halo.staleness import BoundedStaleness, Pipelined, Staleness, Synchronous
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.on_partitions import run_on_partitions
from tests.reference_training import make_graph

GRAPH = make_graph(num_nodes=40)
F = 5


def rows_of(ids: Tensor, epoch: int) -> Tensor:
    """Return the rows of nodes in an epoch: different for each node, column and epoch."""
    return (1000.0 * epoch + ids[:, None] + torch.arange(F) / 10).float()


def gradients_of(ids: Tensor, rank: int, epoch: int) -> Tensor:
    """Return the gradients that a rank computes for rows of nodes in an epoch."""
    return rows_of(ids, epoch) * (rank + 1) / 7


def expected_home(part: Partition, all_halos: list[Tensor], epoch: int) -> Tensor:
    """Return what peers send home for the inner rows, of an epoch. [I, F]."""
    total = torch.zeros(part.num_inner, F)
    for rank, ids in enumerate(all_halos):
        own = torch.isin(ids, part.inner_ids)
        places = torch.searchsorted(part.inner_ids, ids[own])
        total.index_add_(0, places, gradients_of(ids, rank, epoch)[own])
    return total


def run_epochs(
    tmp_path: Path,
    rule: Staleness,
    num_epochs: int,
    check: Callable[[int, Partition, Tensor, Tensor], None],
    *,
    size: int = 3,
    delayed: bool = False,
) -> None:
    """Exchange known rows for some epochs; check the halo rows and what came home in each."""

    def body(inner: LoopbackCommunicator, part: Partition) -> None:
        comm = DelayedCommunicator(inner, seed=3, longest_s=0.01) if delayed else inner
        with CheckedCommunicator(comm) as checked:
            halo = HaloExchange(part, FullPrecision(), staleness=rule, comm=checked)
            for epoch in range(num_epochs):
                x = rows_of(part.inner_ids, epoch).requires_grad_()
                extended = halo.extend(x, layer="conv", training=True)
                assert torch.equal(extended[: part.num_inner], x)
                gradient = torch.zeros_like(extended)
                gradient[part.num_inner :] = gradients_of(part.halo_ids, comm.rank, epoch)
                extended.backward(gradient)
                assert x.grad is not None
                check(epoch, part, extended[part.num_inner :].detach(), x.grad)
                halo.end_epoch()
            halo.drain()

    run_on_partitions(GRAPH, tmp_path, size, body)


def all_halos_of(tmp_path: Path, size: int) -> list[Tensor]:
    return run_on_partitions(GRAPH, tmp_path / "ids", size, lambda comm, part: part.halo_ids)


@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize(
    ("rule", "ages"),
    [
        (Synchronous(), [0, 0, 0, 0, 0]),
        (Pipelined(warmup=2), [0, 0, 1, 1, 1]),
        (Pipelined(warmup=0), [0, 1, 1, 1, 1]),  # there is nothing old in the first
        (Pipelined(warmup=0, sync_every=3), [0, 1, 0, 1, 1]),
        (BoundedStaleness(max_drift=1e9, warmup=2), [0, 0, 1, 1, 1]),
        (BoundedStaleness(max_drift=1e-9, warmup=2), [0, 0, 0, 0, 0]),
    ],
    ids=str,
)
def test_rows_and_gradients_are_those_of_the_epoch_that_the_rule_says(
    tmp_path: Path, rule: Staleness, ages: list[int], size: int, delayed: bool
) -> None:
    halos = all_halos_of(tmp_path, size)

    def check(epoch: int, part: Partition, halo_rows: Tensor, home: Tensor) -> None:
        sent = epoch - ages[epoch]
        assert torch.equal(halo_rows, rows_of(part.halo_ids, sent))
        torch.testing.assert_close(home, expected_home(part, halos, sent))

    run_epochs(tmp_path, rule, len(ages), check, size=size, delayed=delayed)


def test_start_from_zeros_is_the_papers(tmp_path: Path) -> None:
    def check(epoch: int, part: Partition, halo_rows: Tensor, home: Tensor) -> None:
        if epoch == 0:
            assert not halo_rows.any() and not home.any()
        else:
            assert torch.equal(halo_rows, rows_of(part.halo_ids, epoch - 1))

    run_epochs(tmp_path, Pipelined(start="zeros"), 3, check)


def test_drift_is_the_relative_change_of_the_whole_graphs_boundary_rows(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> tuple[list[float], Tensor]:
        rule = BoundedStaleness(max_drift=0.5, warmup=0)
        halo = HaloExchange(part, OneBit(), staleness=rule, comm=comm)
        drifts = []
        for epoch in range(4):
            x = rows_of(part.inner_ids, epoch).requires_grad_()
            halo.extend(x, layer="conv", training=True).sum().backward()
            halo.end_epoch()
            assert halo.last_epoch is not None
            drifts.append(halo.last_epoch.layers[0].drift)
        return drifts, part.inner_ids[torch.unique(part.send_index)]

    results = run_on_partitions(GRAPH, tmp_path, 3, body)
    boundary = torch.cat([ids for _, ids in results])

    def drift(epoch: int) -> float:
        now, before = rows_of(boundary, epoch).double(), rows_of(boundary, epoch - 1).double()
        return float((now - before).norm() / now.norm())

    for drifts, _ in results:
        assert math.isnan(drifts[0])  # nothing was there
        assert drifts[1] == 1.0  # nothing to compare with
        assert drifts[2] == pytest.approx(drift(1), rel=1e-5)
        assert drifts[3] == pytest.approx(drift(2), rel=1e-5)


def test_two_calls_of_a_layer_never_take_each_others_rows(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        rule = Pipelined(warmup=0)
        halo = HaloExchange(part, FullPrecision(), staleness=rule, comm=comm)
        for epoch in range(3):
            total = torch.zeros(())
            for call in range(2):
                x = rows_of(part.inner_ids, 10 * call + epoch).requires_grad_()
                extended = halo.extend(x, layer="conv", training=True)
                sent = max(epoch - 1, 0) + 10 * call
                assert torch.equal(extended[part.num_inner :], rows_of(part.halo_ids, sent))
                total = total + extended.sum()
            total.backward()  # type: ignore[no-untyped-call]
            halo.end_epoch()
        halo.drain()

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_forward_after_backward_begins_an_epoch_where_nobody_ends_it(tmp_path: Path) -> None:
    def check_all(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, FullPrecision(), staleness=Pipelined(warmup=0), comm=comm)
        for epoch in range(3):
            x = rows_of(part.inner_ids, epoch).requires_grad_()
            extended = halo.extend(x, layer="conv", training=True)
            assert halo.epoch == epoch
            assert torch.equal(
                extended[part.num_inner :], rows_of(part.halo_ids, max(epoch - 1, 0))
            )
            extended.sum().backward()
        halo.drain()

    run_on_partitions(GRAPH, tmp_path, 2, check_all)


def test_evaluation_in_the_middle_of_an_epoch_is_fresh_and_changes_nothing(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        with CheckedCommunicator(comm) as checked:
            rule = Pipelined(warmup=0)
            halo = HaloExchange(part, FullPrecision(), staleness=rule, comm=checked)
            for epoch in range(3):
                x = rows_of(part.inner_ids, epoch).requires_grad_()
                extended = halo.extend(x, layer="conv", training=True)
                for other in (
                    rows_of(part.inner_ids, 50 + epoch),
                    rows_of(part.inner_ids, 50 + epoch).requires_grad_(),
                ):
                    seen = halo.extend(other, layer="conv", training=False)
                    assert torch.equal(seen[part.num_inner :], rows_of(part.halo_ids, 50 + epoch))
                    if seen.requires_grad:
                        seen.sum().backward()
                assert torch.equal(
                    extended[part.num_inner :], rows_of(part.halo_ids, max(epoch - 1, 0))
                )
                extended.sum().backward()
                halo.end_epoch()
            halo.drain()

    run_on_partitions(GRAPH, tmp_path, 3, body)


def test_layer_that_skips_an_epoch_begins_anew(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        with CheckedCommunicator(comm) as checked:
            rule = Pipelined(warmup=0)
            halo = HaloExchange(part, FullPrecision(), staleness=rule, comm=checked)
            for epoch, layers in enumerate(["ab", "ab", "a", "ab", "ab"]):
                ages = {"a": [0, 1, 1, 1, 1], "b": [0, 1, 9, 0, 1]}
                total = torch.zeros(())
                for layer in layers:
                    x = rows_of(part.inner_ids, epoch).requires_grad_()
                    extended = halo.extend(x, layer=layer, training=True)
                    sent = epoch - ages[layer][epoch]
                    assert torch.equal(extended[part.num_inner :], rows_of(part.halo_ids, sent))
                    total = total + extended.sum()
                total.backward()  # type: ignore[no-untyped-call]
                halo.end_epoch()
            halo.drain()

    run_on_partitions(GRAPH, tmp_path, 2, body)
