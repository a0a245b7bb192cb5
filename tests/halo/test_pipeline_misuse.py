"""Old rows, used otherwise than in one forward and one backward pass per epoch."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

from horovod_sylvie.comm.checked import CheckedCommunicator
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.codec import FullPrecision
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.halo.packed_codec import OneBit
from horovod_sylvie.halo.staleness import BoundedStaleness, Pipelined, Synchronous
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.on_partitions import run_on_partitions
from tests.halo.test_pipeline import GRAPH, F, rows_of


def test_gradients_that_come_twice_in_an_epoch_raise(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, FullPrecision(), staleness=Pipelined(warmup=0), comm=comm)
        x = rows_of(part.inner_ids, 0).requires_grad_()
        extended = halo.extend(x, layer="conv", training=True)
        extended.sum().backward(retain_graph=True)
        text = r"'conv' backward: .* got those of epoch 0 \(gradients came twice in one epoch\)"
        with pytest.raises(RuntimeError, match=text):
            extended.sum().backward()

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_rows_that_are_too_old_raise(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, FullPrecision(), staleness=Pipelined(warmup=0), comm=comm)
        halo.extend(
            rows_of(part.inner_ids, 0).requires_grad_(), layer="conv", training=True
        ).sum().backward()
        halo.end_epoch()
        halo.parts.clock.resume_at(4)  # as after a checkpoint that does not fit
        with pytest.raises(RuntimeError, match="expected halo rows of epoch 3 in epoch 4, got"):
            halo.extend(rows_of(part.inner_ids, 0).requires_grad_(), layer="conv", training=True)

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_activation_checkpointing_is_refused_with_old_rows_and_works_without(
    tmp_path: Path,
) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        for rule in (Synchronous(), Pipelined()):
            halo = HaloExchange(part, FullPrecision(), staleness=rule, comm=comm)
            x = rows_of(part.inner_ids, 0).requires_grad_()

            def layer(rows: Tensor, halo: HaloExchange = halo) -> Tensor:
                return halo.extend(rows, layer="conv", training=True).sin()

            out = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
            if rule == Synchronous():
                out.sum().backward()
                assert x.grad is not None
            else:
                with pytest.raises(RuntimeError, match="'conv' was called in backward"):
                    out.sum().backward()

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_rows_change_width_between_epochs(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, FullPrecision(), staleness=Pipelined(warmup=0), comm=comm)
        for width in (F, F - 1, F - 1):
            x = rows_of(part.inner_ids, 1)[:, :width].clone().requires_grad_()
            extended = halo.extend(x, layer="conv", training=True)
            assert torch.equal(extended[part.num_inner :], rows_of(part.halo_ids, 1)[:, :width])
            extended.sum().backward()
            halo.end_epoch()
        halo.drain()

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_random_runs_wait_for_everything_once(tmp_path: Path) -> None:
    """Any sequence of epochs, evaluations, skipped layers and drains leaves nothing in flight."""

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        choose = random.Random(5)  # the same on every rank
        rule = BoundedStaleness(max_drift=0.3, warmup=1)
        with CheckedCommunicator(comm) as checked:
            halo = HaloExchange(part, OneBit(), staleness=rule, comm=checked)
            scale = 1.0
            for _ in range(40):
                scale *= choose.choice([1.0, 1.01, 2.0])
                training = choose.random() < 0.8
                total = torch.zeros(())
                for layer in "abc":
                    if choose.random() < 0.8:
                        x = (scale * rows_of(part.inner_ids, 1)).requires_grad_()
                        total = total + halo.extend(x, layer=layer, training=training).sum()
                if total.requires_grad and choose.random() < 0.9:
                    total.backward()  # type: ignore[no-untyped-call]
                if choose.random() < 0.7:
                    halo.end_epoch()
                if choose.random() < 0.2:
                    halo.drain()
            halo.drain()
            assert halo.epoch > 20

    run_on_partitions(GRAPH, tmp_path, 3, body)


def test_backward_of_an_epoch_that_has_ended_ends_no_other(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, FullPrecision(), comm=comm)
        for epoch in range(3):
            x = rows_of(part.inner_ids, epoch).requires_grad_()
            total = sum(halo.extend(x, layer=name, training=True).sum() for name in "ab")
            assert isinstance(total, Tensor)
            total.backward(retain_graph=True)
            halo.end_epoch()
            total.backward()  # late
            halo.end_epoch()
            assert halo.epoch == epoch + 1
            assert halo.last_epoch is not None and len(halo.last_epoch.layers) == 4

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_rows_beyond_all_numbers_are_never_taken_for_unchanged(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        rule = BoundedStaleness(max_drift=1e9, warmup=0)
        halo = HaloExchange(part, FullPrecision(), staleness=rule, comm=comm)
        for epoch in range(5):
            x = rows_of(part.inner_ids, 1)
            x = torch.full_like(x, float("inf")) if epoch == 2 else x
            halo.extend(x.requires_grad_(), layer="conv", training=True).sum().backward()
            halo.end_epoch()
            assert halo.last_epoch is not None
            assert halo.last_epoch.layers[0].is_stale == (epoch in (1, 2)), epoch
        halo.drain()

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_two_exchanges_on_one_communicator_have_names_of_their_own(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halos = [
            HaloExchange(part, staleness=Pipelined(warmup=0), comm=comm, name=name)
            for name in ("halo", "other")
        ]
        for epoch in range(3):
            for halo in halos:
                x = rows_of(part.inner_ids, epoch).requires_grad_()
                halo.extend(x, layer="conv", training=True).sum().backward()
                halo.end_epoch()
        for halo in halos:
            halo.drain()
        with pytest.raises(ValueError, match="expected a text that is not empty for 'name'"):
            HaloExchange(part, comm=comm, name="")

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_double_precision_with_few_bits_is_refused_with_the_cure(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, OneBit(), comm=comm)
        x = rows_of(part.inner_ids, 1).double().requires_grad_()
        text = r"OneBit\(.*: expected rows of float32, .* got torch.float64. Use FullPrecision"
        with pytest.raises(TypeError, match=text):
            halo.extend(x, layer="conv", training=True)

    run_on_partitions(GRAPH, tmp_path, 2, body)
