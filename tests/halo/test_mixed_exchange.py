"""Rows of several widths between ranks, in threads: features out and gradients home."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.bit_tables import exchange_bits
from horovod_sylvie.halo.message import HEADER_BYTES
from horovod_sylvie.halo.mixed_format import MixedFormat
from horovod_sylvie.halo.packed_codec import Bits, OneBit
from horovod_sylvie.halo.plan import HaloPlan, Route
from horovod_sylvie.partition.graph import Graph
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.on_partitions import run_on_partitions, small_graph
from tests.reference_training import make_graph

CODECS = {1: OneBit(), 2: Bits(2), 4: Bits(4), 8: Bits(8)}
GRAPH = make_graph(num_nodes=40)
# Nodes 0 to 3 cut by "contiguous" into five ranks, one of which owns nothing.
RING = small_graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], 4)


def random_rows(*shape: int, seed: int = 0) -> Tensor:
    """Draw in a thread without touching the generator that threads share."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def bits_of(plan: HaloPlan, route: Route) -> Tensor:
    """Draw bits for each distinct row to send."""
    generator = torch.Generator().manual_seed(plan.rank)
    steps = torch.randint(0, 4, (route.num_unique,), generator=generator)
    return (2**steps).to(torch.uint8)


def move(comm: LoopbackCommunicator, form: MixedFormat, rows: Tensor, num_out: int) -> Tensor:
    """Exchange rows through messages, headers that say the sender included. [num_out, F]."""
    messages, nonfinite = form.encode(rows, key=comm.rank)
    assert not nonfinite
    form.write_headers(messages, torch.full((HEADER_BYTES,), comm.rank, dtype=torch.uint8))
    received = comm.alltoall(messages, form.send_splits, form.recv_splits, name="rows").wait()
    peers = [peer for peer in range(comm.size) if peer != comm.rank]
    assert form.read_headers(received).tolist() == [[peer] * HEADER_BYTES for peer in peers]
    out = torch.empty(num_out, rows.shape[1])
    form.decode(received, out)
    return out


def assert_within_a_step(out: Tensor, expected: Tensor, bits: Tensor) -> None:
    low, high = expected.amin(1, keepdim=True), expected.amax(1, keepdim=True)
    step = (high - low + low.abs() / 128) * (1 + 1 / 64) / (2.0 ** bits[:, None] - 1)
    assert bool(((out - expected).abs() <= step).all())


@pytest.mark.parametrize("graph", [GRAPH, RING])
@pytest.mark.parametrize("num_features", [1, 9])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_rows_and_gradients_travel_between_ranks(
    tmp_path: Path, size: int, num_features: int, graph: Graph
) -> None:
    whole = random_rows(graph.num_nodes, num_features)
    gradients = random_rows(size, graph.num_nodes, num_features, seed=1)

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        plan = HaloPlan.from_partition(part)
        readers = torch.repeat_interleave(
            torch.arange(size), torch.tensor(plan.forward.send_splits)
        )
        boundary_ids = part.inner_ids[plan.send_index]
        for route, rows, expected in (
            (plan.forward, whole[part.inner_ids], whole[part.halo_ids]),
            (plan.backward, gradients[comm.rank, part.halo_ids], gradients[readers, boundary_ids]),
        ):
            sent = bits_of(plan, route)
            (received,) = exchange_bits(comm, route, [sent], name="bits")
            form = MixedFormat(
                route,
                codecs=CODECS,
                sent=sent,
                received=received,
                version=3,
                num_features=num_features,
                dtype=torch.float32,
            )
            out = move(comm, form, rows, len(expected))
            assert_within_a_step(out, expected, received)
            if num_features == 1:  # a row of one element is constant
                assert torch.equal(out, expected)

    run_on_partitions(graph, tmp_path, size, body, method="contiguous")
