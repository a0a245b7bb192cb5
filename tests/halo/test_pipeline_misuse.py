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
