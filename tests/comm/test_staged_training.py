"""Training over staged tensors, whose copies end at random: bit for bit that without staging."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import horovod_sylvie as hvs
from horovod_sylvie.comm.checked import CheckedCommunicator
from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from tests.comm.test_staged import guarded
from tests.device.fake_streams import FakeStreams
from tests.gradient.training import COMPRESSIONS, top_k, trained
from tests.halo.door_training import GRAPH, MODES, Training
from tests.halo.on_partitions import run_on_partitions

GRADIENTS: dict[str, dict[str, Any]] = {
    **{name: {"compression": policy} for name, policy in COMPRESSIONS.items()},
    "two-phase": {"compression": top_k(exchange="two-phase")},
    "grouped": {"compression": top_k(), "groups": 2},
    "clipped": {"compression": top_k(), "clip_norm": 0.1},
    "momentum": {"compression": top_k(), "momentum": "dgc"},
    "uneven": {"uneven_batches": True, "telemetry_every": 2},
}


def slow_streams(comm: LoopbackCommunicator) -> FakeStreams:
    return FakeStreams(seed=comm.rank, chance=0.1)


@pytest.mark.parametrize("kind", GRADIENTS)
def test_gradients_are_those_of_plain_training(kind: str) -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        streams = slow_streams(comm)
        with CheckedCommunicator(guarded(comm, streams)) as checked:
            weights = trained(checked, **GRADIENTS[kind])  # type: ignore[arg-type]
        streams.complete_all()
        assert streams.faults == []
        assert streams.num_allocated <= 2 * len(set(checked.submissions))
        return weights

    plain = run_loopback(3, lambda comm: trained(comm, **GRADIENTS[kind]))
    for mine, theirs in zip(run_loopback(3, body), plain, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("mode", MODES)
def test_halo_rows_are_those_of_plain_training(tmp_path: Path, mode: str) -> None:
    def body(comm: Any, part: hvs.Partition) -> tuple[list[float], Tensor]:
        training = Training(comm, part, compression=top_k(), **MODES[mode])
        losses = training.epochs(6)
        training.halo.drain()
        return losses, training.parameters()

    def staged_body(comm: LoopbackCommunicator, part: hvs.Partition) -> tuple[list[float], Tensor]:
        streams = slow_streams(comm)
        with CheckedCommunicator(guarded(comm, streams)) as checked:
            outcome = body(checked, part)
        streams.complete_all()
        assert streams.faults == []
        return outcome

    plain = run_on_partitions(GRAPH, tmp_path, 3, body)
    found = run_on_partitions(GRAPH, tmp_path / "staged", 3, staged_body)
    for (losses, weights), (expected_losses, expected) in zip(found, plain, strict=True):
        assert losses == expected_losses
        assert torch.equal(weights, expected)
