"""The exchange: right rows out, adjoint back, fetched once, counted exactly."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch import Tensor

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.codec import Codec, FullPrecision, Half
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.halo.packed_codec import Bits, OneBit
from horovod_sylvie.halo.traffic import Traffic
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.on_partitions import WatchedCommunicator, run_on_partitions, small_graph
from tests.reference_training import make_graph

METHODS = ["metis", "random", "contiguous"]
CODECS = [FullPrecision(), Half(), Half(torch.bfloat16), OneBit(), OneBit("centroid"), Bits(4)]
GRAPH = make_graph(num_nodes=40)
F = 9
# Nodes 0 to 3 cut by "contiguous" into five ranks, one of which owns nothing.
RING = small_graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], 4)


def numbered_rows(ids: Tensor, owners: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return rows that say owner, global id and column."""
    return (10_000 * owners + 100 * ids)[:, None] + torch.arange(F).to(dtype)


def halo_owners(part: Partition) -> Tensor:
    return torch.repeat_interleave(torch.arange(part.num_parts), torch.tensor(part.recv_splits))


def random_rows(num_rows: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Draw in a thread without touching the generator that threads share."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_rows, F, dtype=dtype, generator=generator)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_extend_appends_the_rows_of_their_owners(tmp_path: Path, size: int, method: str) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, FullPrecision(), comm=comm)
        own = torch.full((part.num_inner,), comm.rank)
        x = numbered_rows(part.inner_ids, own).requires_grad_()
        extended = halo.extend(x, layer="conv", training=True)
        expected = numbered_rows(
            torch.cat([part.inner_ids, part.halo_ids]), torch.cat([own, halo_owners(part)])
        )
        assert torch.equal(extended, expected)

    run_on_partitions(GRAPH, tmp_path, size, body, method=method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_backward_is_the_adjoint_of_forward(tmp_path: Path, size: int, method: str) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, FullPrecision(), comm=comm)
        x = random_rows(part.num_inner, comm.rank).requires_grad_()
        y = random_rows(part.num_inner + part.num_halo, 100 + comm.rank)
        extended = halo.extend(x, layer="conv", training=True)
        extended.backward(y)
        assert x.grad is not None
        sides = torch.stack([(extended * y).sum(), (x * x.grad).sum()]).detach()
        left, right = comm.allreduce(sides, name="sides").wait()
        torch.testing.assert_close(left, right, rtol=1e-13, atol=1e-12)

    run_on_partitions(GRAPH, tmp_path, size, body, method=method)


@pytest.mark.parametrize("size", [1, 3, 4])
def test_gradient_equals_autograd_through_the_whole_matrix(tmp_path: Path, size: int) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> tuple[Tensor, Tensor, Tensor]:
        halo = HaloExchange(part, FullPrecision(), comm=comm)
        x = random_rows(GRAPH.num_nodes, 0)[part.inner_ids].requires_grad_()
        ids = torch.cat([part.inner_ids, part.halo_ids])
        first = halo.extend(x, layer="first", training=True)
        second = halo.extend(first[: part.num_inner].sin(), layer="second", training=True)
        (first.cos() * second * (comm.rank + 1)).sum().backward()
        assert x.grad is not None
        return part.inner_ids, ids, x.grad

    results = run_on_partitions(GRAPH, tmp_path, size, body)
    whole = random_rows(GRAPH.num_nodes, 0).requires_grad_()
    terms = [
        (whole[ids].cos() * whole.sin()[ids] * (rank + 1)).sum()
        for rank, (_, ids, _) in enumerate(results)
    ]
    sum(terms).backward()
    assert whole.grad is not None
    for inner_ids, _, gradient in results:
        torch.testing.assert_close(gradient, whole.grad[inner_ids], rtol=1e-13, atol=1e-13)


def test_input_that_needs_no_gradient_is_fetched_once_in_full_precision(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, OneBit(), comm=comm)
        whole = random_rows(GRAPH.num_nodes, 0, torch.float32)
        x = whole[part.inner_ids]
        for _ in range(3):
            extended = halo.extend(x, layer="conv", training=True)
            assert torch.equal(extended, whole[torch.cat([part.inner_ids, part.halo_ids])])
        with torch.no_grad():
            assert halo.extend(x[:], layer="conv", training=False) is extended
        assert halo.traffic.total().num_exchanges == 1
        assert halo.traffic.total("features").num_exchanges == 1

    run_on_partitions(GRAPH, tmp_path, 3, body)


def test_input_modified_in_place_is_fetched_again_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, comm=comm)
        whole = random_rows(GRAPH.num_nodes, 0, torch.float32)
        x = whole[part.inner_ids]
        halo.extend(x, layer="conv", training=True)
        x.mul_(2.0)
        extended = halo.extend(x, layer="conv", training=True)
        assert torch.equal(extended, 2 * whole[torch.cat([part.inner_ids, part.halo_ids])])
        extended.zero_()  # somebody writes to what was handed out
        again = halo.extend(x, layer="conv", training=True)
        assert torch.equal(again, 2 * whole[torch.cat([part.inner_ids, part.halo_ids])])
        assert halo.traffic.total("features").num_exchanges == 3

    with caplog.at_level(logging.WARNING, logger="horovod_sylvie"):
        run_on_partitions(GRAPH, tmp_path, 2, body)
    (warning,) = [record.getMessage() for record in caplog.records]  # not once per rank or step
    assert warning.startswith("the input of 'conv' needs no gradient but changes from step to")
    assert "dropped out or augmented" in warning
    assert "frozen layers" in warning


def test_hidden_rows_are_not_taken_for_the_input(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, FullPrecision(), comm=comm)
        x = random_rows(part.num_inner, comm.rank)
        halo.extend(x, layer="conv", training=True)
        hidden = x.detach().requires_grad_()  # the same memory
        halo.extend(hidden, layer="conv", training=True)
        other = halo.extend(x + 1, layer="conv", training=True)
        assert torch.equal(other[: part.num_inner], x + 1)
        assert halo.traffic.total("features").num_exchanges == 2
        assert halo.traffic.total("forward").num_exchanges == 1

    run_on_partitions(GRAPH, tmp_path, 2, body)


@pytest.mark.parametrize("training", [True, False])
def test_evaluation_travels_in_full_precision(tmp_path: Path, training: bool) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, OneBit(), comm=comm)
        whole = random_rows(GRAPH.num_nodes, 0, torch.float32)
        x = whole[part.inner_ids].requires_grad_()
        with torch.no_grad() if training else torch.enable_grad():
            extended = halo.extend(x, layer="conv", training=training)
        assert torch.equal(extended, whole[torch.cat([part.inner_ids, part.halo_ids])])
        assert halo.traffic.entries.keys() == {("conv", "evaluation")}
        if extended.requires_grad:  # gradients in evaluation mode are exact too
            extended.sum().backward()
            sent = torch.bincount(part.send_index, minlength=part.num_inner)
            assert torch.equal(x.grad, (1.0 + sent)[:, None].expand_as(x))
        with torch.inference_mode():
            halo.extend(x * 1, layer="conv", training=False)
        # gradients in evaluation mode, where there are some, count as evaluation
        assert halo.traffic.total("evaluation").num_exchanges == (2 if training else 3)

    run_on_partitions(GRAPH, tmp_path, 3, body)


@pytest.mark.parametrize("codec", [OneBit(), Bits(4)])
def test_noise_is_new_for_each_step_layer_and_seed_but_reproducible(
    tmp_path: Path, codec: Codec
) -> None:
    def draws(comm: LoopbackCommunicator, part: Partition, seed: int) -> list[Tensor]:
        halo = HaloExchange(part, codec, comm=comm, seed=seed)
        x = random_rows(part.num_inner, comm.rank, torch.float32).requires_grad_()
        names = ["a", "a", "b"]
        return [halo.extend(x, layer=name, training=True).detach() for name in names]

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        first, again = draws(comm, part, 7), draws(comm, part, 7)
        assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
        different = [*first, draws(comm, part, 8)[0]]
        for i, one in enumerate(different):
            assert not any(torch.equal(one, other) for other in different[:i])

    run_on_partitions(GRAPH, tmp_path, 2, body)


@pytest.mark.parametrize(
    ("codec", "dtype"),
    [(codec, dtype) for codec in CODECS for dtype in (torch.float32, torch.bfloat16)]
    + [(codec, torch.float64) for codec in CODECS[:3]],  # packed codecs take no float64
)
def test_ledger_counts_the_bytes_handed_over_and_they_are_the_formula(
    tmp_path: Path, codec: Codec, dtype: torch.dtype
) -> None:
    def body(inner: LoopbackCommunicator, part: Partition) -> None:
        sent: dict[str, int] = {}

        def count(name: str, rows: Tensor) -> None:
            sent[name] = sent.get(name, 0) + rows.nbytes

        halo = HaloExchange(part, codec, comm=WatchedCommunicator(inner, sent=count))
        x = random_rows(part.num_inner, inner.rank, dtype).requires_grad_()
        for _ in range(2):
            halo.extend(x, layer="conv", training=True).sum().backward()

        def formula(num_rows: int, width: int) -> int:
            return ((inner.size - 1) * -(-32 // width) + num_rows) * width

        full = F * dtype.itemsize
        for direction, num_rows, used in (
            ("forward", len(part.send_index), codec),
            ("backward", part.num_halo, codec.for_gradients()),
        ):
            wanted = formula(num_rows, used.row_bytes(F, dtype))
            traffic = halo.traffic.entries["conv", direction]
            assert traffic == Traffic(2, 2 * wanted, 2 * formula(num_rows, full))
            assert sent[f"sylvie.halo.conv.{direction}"] == traffic.bytes_sent

    run_on_partitions(GRAPH, tmp_path, 3, body)


def test_gradients_of_centroid_travel_as_minmax(tmp_path: Path) -> None:
    def body(inner: LoopbackCommunicator, part: Partition) -> None:
        codecs: dict[str, list[int]] = {}

        def note(name: str, rows: Tensor) -> None:
            codecs[name.rpartition(".")[2]] = rows.flatten()[6:8].tolist()

        halo = HaloExchange(part, OneBit("centroid"), comm=WatchedCommunicator(inner, sent=note))
        x = random_rows(part.num_inner, inner.rank, torch.float32).requires_grad_()
        halo.extend(x, layer="conv", training=True).sum().backward()
        assert codecs == {"forward": [0x01, 0x03], "backward": [0x01, 0x02]}

    run_on_partitions(GRAPH, tmp_path, 2, body)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("codec", CODECS)
def test_rows_of_any_strides_give_what_contiguous_rows_give(
    tmp_path: Path, codec: Codec, dtype: torch.dtype
) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        rows = random_rows(part.num_inner, comm.rank, torch.float32).to(dtype)
        results = []
        for same in (rows, rows.T.contiguous().T, rows.repeat_interleave(2, dim=1)[:, ::2]):
            halo = HaloExchange(part, codec, comm=comm)
            x = same.detach().requires_grad_()
            extended = halo.extend(x, layer="conv", training=True)
            extended.T.contiguous().T.sum().backward()  # an expanded gradient
            results.append(torch.cat([extended.detach(), x.grad]))
        assert results[0].dtype == dtype
        assert torch.equal(results[0], results[1])
        assert torch.equal(results[0], results[2])

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_one_rank_sends_nothing(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, OneBit(), comm=comm)
        x = random_rows(part.num_inner, 0).requires_grad_()
        extended = halo.extend(x, layer="conv", training=True)
        extended.backward(extended.detach())
        assert torch.equal(extended, x) and torch.equal(x.grad, x)
        assert halo.traffic.total() == Traffic()

    run_on_partitions(GRAPH, tmp_path, 1, body)


@pytest.mark.parametrize("codec", CODECS)
def test_rank_without_inner_rows_takes_part(tmp_path: Path, codec: Codec) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> int:
        halo = HaloExchange(part, codec, comm=comm)
        weight = torch.ones(3, requires_grad=True)
        for _ in range(2):
            x = part.x * 1  # a new tensor each time, on the empty rank too
            extended = halo.extend(x, layer="input", training=True)
            assert torch.equal(extended[:, 0], 10.0 * torch.cat([part.inner_ids, part.halo_ids]))
            hidden = extended[: part.num_inner] * weight
            halo.extend(hidden, layer="hidden", training=True).sum().backward()
        assert weight.grad is not None and bool(weight.grad.isfinite().all())
        assert halo.traffic.total("features").num_exchanges == 2
        return part.num_inner

    assert 0 in run_on_partitions(RING, tmp_path, 5, body, method="contiguous")
