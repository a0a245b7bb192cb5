"""Where the hot paths read tensors on the host: in these places, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from horovod_sylvie.halo.codec import all_finite
from horovod_sylvie.halo.message import Header, check_headers
from tests.device.host_reads import HostReads
from tests.gradient.training import COMPRESSIONS, make_model, top_k, train, wrap
from tests.halo.door_training import GRAPH, MODES, Training
from tests.halo.on_partitions import run_on_partitions

FINITE = "gradient.fused_exchange.nonfinite_sums"  # of small parameters, at the end of a step
GRADIENTS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "none": ({"compression": COMPRESSIONS["none"]}, set()),
    "fp16": ({"compression": COMPRESSIONS["fp16"]}, set()),
    "bf16": ({"compression": COMPRESSIONS["bf16"]}, set()),
    "topk": ({"compression": top_k()}, {FINITE}),
    "two-phase": ({"compression": top_k(exchange="two-phase")}, {FINITE}),
    "momentum": ({"compression": top_k(), "momentum": "dgc"}, {FINITE}),
    "clipped": (
        {"compression": top_k(), "clip_norm": 0.1},
        {FINITE, "gradient.clipping.clip_factor"},
    ),
}
HALO = {
    "half": {"codec": hvs.Half(), "staleness": hvs.BoundedStaleness(warmup=1)},
    **{name: MODES[name] for name in ("full", "one bit", "pipelined", "bounded", "degree")},
}


def test_reads_are_seen_and_named() -> None:
    mask = torch.tensor([True, False])
    with HostReads() as reads:
        assert bool(mask.any()) and torch.ones(2)[mask].tolist() == [1.0]
        assert mask.nonzero().tolist() == [[0]]
    assert reads.found == set()  # of the package

    header = Header(codec=1, topic=2, step=3)
    with HostReads() as reads:
        finite = all_finite(torch.ones(2))
    assert reads.found == set()
    with HostReads() as reads:
        assert finite.item()
        check_headers(header.to_tensor()[None], header, [1], "halo")
    assert reads.found == {"halo.message.check_headers"}


@pytest.mark.parametrize("kind", GRADIENTS)
def test_gradients_are_read_where_a_decision_needs_it_only(kind: str) -> None:
    options, expected = GRADIENTS[kind]

    def body(comm: LoopbackCommunicator) -> set[str]:
        model = make_model()
        optimizer = wrap(model, comm, **options)
        train(model, optimizer, comm, range(3))
        with HostReads() as reads:
            train(model, optimizer, comm, range(3, 5))
        return reads.found

    assert run_loopback(2, body) == [expected] * 2


@pytest.mark.parametrize("mode", HALO)
def test_halo_rows_are_read_by_their_headers_only(tmp_path: Path, mode: str) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> set[str]:
        training = Training(comm, part, **HALO[mode])
        training.epochs(5)
        with HostReads() as reads:
            training.optimizer.zero_grad()
            training.loss().backward()
            training.optimizer.step()
        return reads.found

    # The headers are on the host by then
    headers = "halo.message.check_headers"
    expected = {headers, "halo.objective.loss_share", FINITE}
    assert run_on_partitions(GRAPH, tmp_path, 2, body) == [expected] * 2
