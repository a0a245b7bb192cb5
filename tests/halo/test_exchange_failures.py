"""What goes wrong in an exchange is said on every rank that it concerns, and none hangs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from horovod_sylvie.comm.errors import CommunicationError, PeerError
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.codec import Codec, FullPrecision, Half
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.halo.packed_codec import Bits, OneBit
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.on_partitions import WatchedCommunicator, run_on_partitions
from tests.reference_training import make_graph

GRAPH = make_graph(num_nodes=40)
F = 9


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda comm, part: HaloExchange(part, Bits(2 << comm.rank), comm=comm), "Bits(bits=4)"),
        (lambda comm, part: HaloExchange(part, comm=comm, seed=comm.rank), "seed 1"),
        (
            lambda comm, part: HaloExchange(
                dataclasses.replace(part, digest=f"{comm.rank:064x}"[::-1]), comm=comm
            ),
            "partition 1000000000000000",
        ),
    ],
    ids=["codec", "seed", "partition"],
)
def test_ranks_that_differ_in_options_all_raise(tmp_path: Path, make, text: str) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> str:
        with pytest.raises(PeerError, match="the ranks differ in halo exchange options") as caught:
            make(comm, part)
        return str(caught.value)

    texts = run_on_partitions(GRAPH, tmp_path, 2, body)
    for rank, said in enumerate(texts):
        assert said.startswith(f"rank {rank}: the ranks differ")
        assert text in said
        assert said.endswith("Start every rank with the same partition directory and options.")


def test_codec_of_another_type_raises(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        HaloExchange(part, "onebit", comm=comm)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match=re.escape("for 'codec', got 'onebit'.")):
        run_on_partitions(GRAPH, tmp_path, 1, body)


@pytest.mark.parametrize("seed", ["x", 1.5, None, True])
def test_seed_of_another_type_raises(tmp_path: Path, seed: object) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        HaloExchange(part, comm=comm, seed=seed)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match=re.escape(f"an int for 'seed', got {seed!r}.")):
        run_on_partitions(GRAPH, tmp_path, 1, body)


def test_partition_of_another_rank_raises(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        HaloExchange(dataclasses.replace(part, rank=1 - part.rank), comm=comm)

    with pytest.raises(ValueError, match="expected the partition of rank 0 of 2 .* rank 1 of 2"):
        run_on_partitions(GRAPH, tmp_path, 2, body)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda part: torch.ones(part.num_inner + 1, F), "got {inner_plus_1} rows. Give the rows"),
        (lambda part: torch.ones(part.num_inner, F, dtype=torch.int64), "got torch.int64 ({inner}"),
        (lambda part: torch.ones(part.num_inner), "got torch.float32 ({inner},)"),
        (lambda part: torch.ones(part.num_inner, 0), "got torch.float32 ({inner}, 0)"),
        (lambda part: torch.ones(part.num_inner, 2, 3), "got torch.float32 ({inner}, 2, 3)"),
    ],
    ids=["rows", "dtype", "vector", "no features", "three dimensions"],
)
def test_rows_that_do_not_fit_raise_before_anything_is_sent(tmp_path: Path, make, text) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, comm=comm)
        inner = part.num_inner
        wanted = f"HaloExchange.start: expected floating-point inner rows [{inner}, F] for 'x'"
        got = text.format(inner=inner, inner_plus_1=inner + 1)
        with pytest.raises(ValueError, match=re.escape(wanted) + ".*" + re.escape(got)):
            halo.extend(make(part), layer="conv", training=True)
        assert halo.traffic.total().num_exchanges == 0

    run_on_partitions(GRAPH, tmp_path, 2, body)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda part: None, "got NoneType. Give a torch tensor."),
        (lambda part: part.x.numpy(), "got ndarray. Give a torch tensor."),
        (lambda part: part.x.to_sparse(), "got layout torch.sparse_coo. Give a dense tensor."),
    ],
    ids=["None", "array", "sparse"],
)
@pytest.mark.parametrize("fetched_before", [False, True])
def test_rows_that_are_no_dense_tensor_raise(
    tmp_path: Path, make, text: str, fetched_before: bool
) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, comm=comm)
        if fetched_before:
            halo.extend(part.x, layer="conv", training=True)
        expected = r"HaloExchange.start: expected .* for 'x', "
        with pytest.raises(TypeError, match=expected + re.escape(text)):
            halo.extend(make(part), layer="conv", training=True)

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_input_made_under_inference_mode_raises_in_training(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, comm=comm)
        with torch.inference_mode():
            x = part.x * 1
            halo.extend(x, layer="conv", training=False)
        for _ in range(2):
            with pytest.raises(ValueError, match=r"'x' of 'conv' in training.* Clone it outside"):
                halo.extend(x, layer="conv", training=True)
        assert halo.traffic.total("features").num_exchanges == 0
        extended = halo.extend(x.clone(), layer="conv", training=True)
        assert torch.equal(extended[: part.num_inner], part.x)

    run_on_partitions(GRAPH, tmp_path, 2, body)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("codec", [Half(), OneBit(), OneBit("centroid"), Bits(8)])
def test_nonfinite_rows_of_one_rank_raise_on_every_rank(
    tmp_path: Path, codec: Codec, value: float, backward: bool
) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, codec, comm=comm)
        x = torch.ones(part.num_inner, F)
        if comm.rank == 1 and not backward:
            x[part.send_index[0], 3] = value
        x.requires_grad_()
        gradient = torch.ones(part.num_inner + part.num_halo, F)
        if comm.rank == 1 and backward:
            gradient[part.num_inner] = value
        direction = "backward" if backward else "forward"
        text = f"rank {comm.rank}: 'sylvie.halo.conv.{direction}': the rows of rank 1 hold Inf, NaN"
        with pytest.raises(FloatingPointError, match=text):
            halo.extend(x, layer="conv", training=True).backward(gradient)

    run_on_partitions(GRAPH, tmp_path, 3, body)


def test_nonfinite_rows_of_several_ranks_are_all_named(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, comm=comm)
        x = torch.ones(part.num_inner, F)
        if comm.rank != 1:
            x[part.send_index[0]] = float("nan")
        with pytest.raises(FloatingPointError, match="the rows of rank 0, 2 hold"):
            halo.extend(x.requires_grad_(), layer="conv", training=True)

    run_on_partitions(GRAPH, tmp_path, 3, body)


def test_full_precision_passes_nonfinite_rows_on(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, FullPrecision(), comm=comm)
        x = torch.full((part.num_inner, F), float("nan"), requires_grad=True)
        assert bool(halo.extend(x, layer="conv", training=True).isnan().all())

    run_on_partitions(GRAPH, tmp_path, 2, body)


def flip(row: int, byte: int, bit: int) -> Callable[[str, Tensor], None]:
    def damage(name: str, rows: Tensor) -> None:
        rows[row, byte] ^= 1 << bit

    return damage


# With 6 bytes a row, 6 rows hold the header; row 6 is the first of rank 0's rows.
@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (flip(0, 0, 3), "'sylvie.halo.conv.forward': expected magic b'HVSM' .* from rank 0"),
        (flip(0, 4, 0), "expected version 2 in the message header, got 3 from rank 0"),
        (flip(1, 0, 1), "expected codec 513 in the message header, got 515 from rank 0"),
        (flip(1, 2, 0), "expected topic .* from rank 0"),
        (flip(2, 1, 0), "expected step 0 .* got 256 from rank 0"),
        (flip(0, 5, 7), "expected zeros in the unused bits .* from rank 0"),
        (lambda name, rows: rows[6, 0:4].fill_(0xFF), "unpack_rows: .* corrupt row 6"),
        (flip(6, 5, 7), "unpack_rows: .* corrupt row 6"),
        (
            lambda name, rows: rows[6].copy_(torch.tensor([0, 0, 0xC0, 0x7F, 0, 0])),
            "decode: expected finite rows .* got row 6 marked as Inf or NaN",
        ),
    ],
    ids=[
        "magic",
        "version",
        "codec",
        "topic",
        "step",
        "flags",
        "row header",
        "unused bit",
        "not finite",
    ],
)
def test_damaged_message_raises_on_its_receiver_and_leaves_nobody_waiting(
    tmp_path: Path, damage: Callable[[str, Tensor], None], text: str
) -> None:
    ended: dict[int, BaseException] = {}

    def body(inner: LoopbackCommunicator, part: Partition) -> None:
        comm = inner if inner.rank == 0 else WatchedCommunicator(inner, received=damage)
        halo = HaloExchange(part, comm=comm)
        x = torch.arange(part.num_inner * F).reshape(-1, F).float().requires_grad_()
        try:
            halo.extend(x, layer="conv", training=True).sum().backward()
        except (ValueError, CommunicationError) as error:
            ended[inner.rank] = error
            raise

    with pytest.raises(ValueError, match=text):
        run_on_partitions(GRAPH, tmp_path, 2, body)
    assert isinstance(ended[1], ValueError)
    # rank 0 got its rows, and learns in the backward exchange that rank 1 ended
    assert isinstance(ended[0], CommunicationError)
    assert "rank 1 raised ValueError" in str(ended[0])


def test_ranks_at_different_steps_raise(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, comm=comm)
        x = torch.ones(part.num_inner, F, requires_grad=True)
        halo.extend(x, layer="other", training=True)  # the ranks agree to go on
        if comm.rank == 1:
            # as after steps that rank 0 did not make
            halo.parts.sender.steps["sylvie.halo.conv.forward"] = 5
        with pytest.raises(
            ValueError, match=f"expected step {5 * comm.rank} .* got {5 - 5 * comm.rank}"
        ):
            halo.extend(x, layer="conv", training=True)

    run_on_partitions(GRAPH, tmp_path, 2, body)
