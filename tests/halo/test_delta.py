"""Changes instead of rows: equal copies on both ends, errors that shrink, refreshes."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.codec import Codec
from horovod_sylvie.halo.contraction import contraction_bound
from horovod_sylvie.halo.delta import Delta
from horovod_sylvie.halo.delta_copies import Copies
from horovod_sylvie.halo.delta_format import DeltaStream
from horovod_sylvie.halo.message import HEADER_BYTES
from horovod_sylvie.halo.packed_codec import Bits, OneBit
from horovod_sylvie.halo.plan import HaloPlan, Route
from horovod_sylvie.partition.graph import Graph
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.delta_streams import (
    CENTROID,
    EVERY,
    REFRESH,
    copies_of,
    exchange,
    random_rows,
    stream_of,
)
from tests.halo.on_partitions import run_on_partitions, small_graph
from tests.reference_training import make_graph

# Nodes 0 to 3 cut by "contiguous" into five ranks, one of which owns nothing.
RING = small_graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], 4)


@dataclasses.dataclass(frozen=True)
class Unchecked(OneBit):
    """A codec that claims to contract, so that it is not refused."""

    def contraction_bound(self, num_features: int) -> float:
        return 0.0


def test_change_by_centroids_is_worked_by_hand() -> None:
    stream = stream_of(Delta(CENTROID), [0], 4)
    start = torch.tensor([[10.0, 20.0, 30.0, 40.0]])
    assert torch.equal(exchange(stream, start), start)
    # change 0 0 4 8, mean 3: the means of the sides are 0 and 6
    rows = start + torch.tensor([0.0, 0.0, 4.0, 8.0])
    assert torch.equal(exchange(stream, rows), start + torch.tensor([0.0, 0.0, 6.0, 6.0]))
    # what is missing is 0 0 -2 2, mean 0: -2, and 2/3, which is 2.671875 above -2 in bfloat16
    expected = start + torch.tensor([0.671875, 0.671875, 4.0, 6.671875])
    assert torch.equal(exchange(stream, rows), expected)
    assert torch.equal(copies_of(stream).sent, expected)
    assert torch.equal(copies_of(stream).received, expected)


def exchanges_of(
    comm: LoopbackCommunicator, part: Partition, delta: Delta, epochs: list[Tensor]
) -> list[Copies]:
    """Exchange the rows of each epoch; return the copies after each."""
    plan = HaloPlan.from_partition(part)
    stream = DeltaStream(
        delta, plan.forward, num_features=epochs[0].shape[1], dtype=epochs[0].dtype
    )
    header = torch.arange(HEADER_BYTES, dtype=torch.uint8)
    kept = []
    for epoch, whole in enumerate(epochs):
        rows = whole[part.inner_ids]
        format_ = stream.format()
        messages, nonfinite = format_.encode(rows, 1000 * comm.rank + epoch)
        assert not nonfinite
        assert torch.equal(rows, whole[part.inner_ids])
        format_.write_headers(messages, header)
        received = comm.alltoall(
            messages, format_.send_splits, format_.recv_splits, name="rows"
        ).wait()
        read = format_.read_headers(received)
        assert torch.equal(read, header.expand(part.num_parts - 1, -1))
        out = rows.new_full((part.num_halo, rows.shape[1]), 77.0)
        format_.decode(received, out)
        copies = copies_of(stream)
        kept.append(dataclasses.replace(copies, received=copies.received.clone()))
        assert torch.equal(out, kept[-1].received.to(out.dtype))
        if format_.identifier == REFRESH:
            assert torch.equal(out, whole[part.halo_ids])
    return kept


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("codec", EVERY)
@pytest.mark.parametrize(
    ("graph", "size", "method"),
    [
        (make_graph(num_nodes=40), 2, "metis"),
        (make_graph(num_nodes=40), 4, "random"),
        (RING, 5, "contiguous"),
    ],
)
def test_copies_of_both_ends_are_equal_bit_for_bit(
    tmp_path: Path, graph: Graph, size: int, method: str, codec: Codec, dtype: torch.dtype
) -> None:
    start = random_rows(graph.num_nodes, 9, seed=0)
    epochs = [
        (start + 0.1 * epoch * random_rows(graph.num_nodes, 9, seed=epoch)).to(dtype)
        for epoch in range(9)
    ]

    def body(comm: LoopbackCommunicator, part: Partition) -> tuple[Partition, list[Copies]]:
        return part, exchanges_of(comm, part, Delta(codec, refresh_every=6), epochs)

    results = run_on_partitions(graph, tmp_path, size, body, method=method)
    for epoch in range(len(epochs)):
        of_owner = torch.full((graph.num_nodes, 9), float("nan"))
        for part, kept in results:
            unique = HaloPlan.from_partition(part).forward.unique_rows
            of_owner[part.inner_ids[unique]] = kept[epoch].sent
        for part, kept in results:
            assert kept[epoch].received.dtype == torch.float32
            got, expected = kept[epoch].received, of_owner[part.halo_ids]
            assert torch.equal(got.view(torch.int32), expected.view(torch.int32))
            assert kept[epoch].exchanges == epoch % 6 + 1


def errors_of(codec: Codec, num_steps: int) -> list[float]:
    """Send zeros, then the same 100 rows again and again; return the relative error after each."""
    rows = random_rows(100, 64, seed=3)
    stream = stream_of(Delta(codec, refresh_every=1000), list(range(100)), 64)
    exchange(stream, torch.zeros(100, 64))
    received = [exchange(stream, rows, key) for key in range(num_steps)]
    return [float((each - rows).norm() / rows.norm()) for each in received]


@pytest.mark.parametrize("codec", [codec for codec in EVERY if codec != CENTROID])
def test_error_falls_by_a_fifth_and_more_in_every_step_where_rows_stand_still(
    codec: Codec,
) -> None:
    errors = errors_of(codec, 12)
    for before, after in itertools.pairwise(errors):
        assert after < max(0.8 * before, 1e-6)
    assert errors[-1] < 1e-6


def test_error_of_centroids_falls_geometrically_where_rows_stand_still() -> None:
    errors = errors_of(CENTROID, 400)
    # Far elements are left at last, and of them each step takes away little
    slowest = math.sqrt(contraction_bound(CENTROID, 64))
    for before, after in itertools.pairwise(errors):
        assert after < max(slowest * before, 1e-6)
    assert errors[10] < 0.1
    assert errors[-1] < 1e-6


def test_error_of_minmax_bits_grows_from_step_to_step() -> None:
    errors = errors_of(Unchecked("minmax"), 20)
    assert errors[0] > 1
    assert all(after > 1.2 * before for before, after in itertools.pairwise(errors))
    assert errors[-1] > 100 * errors[0]


def test_change_is_sent_better_than_the_row() -> None:
    start, step = random_rows(50, 64, seed=0), random_rows(50, 64, seed=1)
    stream = stream_of(Delta(CENTROID), list(range(50)), 64)
    exchange(stream, start)
    for epoch in range(1, 10):
        rows = start + 0.05 * epoch * step
        error = (exchange(stream, rows) - rows).norm() / rows.norm()
        assert error < 0.15  # of the row itself, one bit loses 0.6


@pytest.mark.parametrize("refresh_every", [1, 2, 3, 7])
def test_rows_are_refreshed_as_often_as_asked(refresh_every: int) -> None:
    stream = stream_of(Delta(CENTROID, refresh_every), [0, 1], 8)
    refreshed = []
    for epoch in range(9):
        rows = random_rows(2, 8, seed=epoch)
        refreshed.append(stream.format().identifier == REFRESH)
        assert torch.equal(exchange(stream, rows), rows) == refreshed[-1]
    assert refreshed == [epoch % refresh_every == 0 for epoch in range(9)]


def test_reset_makes_the_next_exchange_a_refresh() -> None:
    stream = stream_of(Delta(CENTROID), [0, 1], 8)
    exchange(stream, random_rows(2, 8, seed=0))
    exchange(stream, random_rows(2, 8, seed=1))
    stream.reset()
    assert stream.format().identifier == REFRESH
    rows = random_rows(2, 8, seed=2)
    assert torch.equal(exchange(stream, rows), rows)


def test_rows_that_are_all_sent_in_order_need_no_names() -> None:
    route = Route(0, None, torch.arange(3), (0, 3), (0, 3))
    stream = DeltaStream(Delta(Bits(8)), route, num_features=4, dtype=torch.float32)
    exchange(stream, torch.zeros(3, 4))
    rows = random_rows(3, 4, seed=0)
    for key in range(9):
        out = exchange(stream, rows, key)
        assert torch.equal(rows, random_rows(3, 4, seed=0))
    torch.testing.assert_close(out, rows)


@pytest.mark.parametrize("codec", EVERY)
def test_rank_without_rows_makes_every_exchange(codec: Codec) -> None:
    stream = stream_of(Delta(codec, refresh_every=2), [], 4)
    for _ in range(3):
        assert exchange(stream, torch.empty(0, 4)).shape == (0, 4)
    assert copies_of(stream).sent.shape == (0, 4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rows_arrive_exactly_once_they_stand_still(dtype: torch.dtype) -> None:
    stream = stream_of(Delta(CENTROID, 100), [0, 1], 16, dtype)
    rows = random_rows(2, 16, seed=0).to(dtype)
    exchange(stream, rows)
    rows = (rows + 1).to(dtype)
    received = [exchange(stream, rows) for _ in range(60)]
    assert not torch.equal(received[0], rows)
    assert torch.equal(received[-1], rows)


def test_identifiers_are_distinct_and_descriptions_count_exchanges() -> None:
    identifiers = {codec.identifier for codec in EVERY} | {REFRESH, 0x0400}
    assert len(identifiers) == len(EVERY) + 2
    rows = torch.ones(1, 4)
    for codec in EVERY:
        stream = stream_of(Delta(codec), [0], 4)
        descriptions = set()
        for _ in range(4):
            format_ = stream.format()
            descriptions.add(format_.description)
            exchange(stream, rows)
        assert len(descriptions) == 4
        assert 0 <= format_.identifier < 2**16
        assert format_.identifier not in identifiers
        identifiers.add(format_.identifier)
        assert str(format_) == str(Delta(codec))


@pytest.mark.parametrize("codec", [Bits(1), Bits(2), OneBit(), OneBit("minmax")])
def test_codec_that_does_not_contract_is_refused_with_the_cure(codec: Codec) -> None:
    with pytest.raises(ValueError, match="Delta: expected a codec whose error is") as caught:
        Delta(codec)
    text = str(caught.value)
    assert f"got {codec!r}: for 64 features, its squared error can be " in text
    assert "The error of the copies would grow from step to step instead of shrinking" in text
    assert "Use OneBit(code='centroid') or Bits(bits=4) or Bits(bits=8) or Half(" in text


def test_codec_that_does_not_contract_wide_rows_is_refused_when_they_come() -> None:
    stream_of(Delta(Bits(4)), [0], 436)
    with pytest.raises(ValueError, match="Delta: expected a codec whose error is") as caught:
        stream_of(Delta(Bits(4)), [0], 512)
    text = str(caught.value)
    assert "got Bits(bits=4): for 512 features, its squared error can be 1.17 times" in text
    assert "Use OneBit(code='centroid') or Bits(bits=8) or Half(" in text


@pytest.mark.parametrize("codec", ["centroid", None, OneBit, Delta(CENTROID)])
def test_codec_that_is_none_raises(codec) -> None:
    with pytest.raises(TypeError, match="Delta: expected a Codec, such as OneBit"):
        Delta(codec)


@pytest.mark.parametrize("refresh_every", [0, -1, 2.0, True, None])
def test_period_that_is_not_allowed_raises(refresh_every) -> None:
    text = f"Delta: expected an int of at least 1 for 'refresh_every', got {refresh_every!r}."
    with pytest.raises(ValueError, match=re.escape(text)):
        Delta(CENTROID, refresh_every)


def test_gradients_travel_as_such_by_an_unbiased_codec() -> None:
    assert Delta(CENTROID).for_gradients() == OneBit("minmax")
    assert Delta(Bits(4)).for_gradients() == Bits(4)


def test_option_is_frozen_hashable_and_says_what_it_is() -> None:
    delta = Delta(CENTROID)
    assert hash(delta) == hash(Delta(CENTROID, 50))
    assert str(delta) == "Delta(codec=OneBit(code='centroid'), refresh_every=50)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        delta.refresh_every = 3  # type: ignore[misc]
