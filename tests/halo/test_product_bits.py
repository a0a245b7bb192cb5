"""Products of rows of few bits travel with more bits, where that still makes fewer bytes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.nn import GCNConv
from torch_geometric.nn.dense import Linear

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.automatic import Automatic
from horovod_sylvie.halo.bit_policy import BudgetBits
from horovod_sylvie.halo.codec import Codec, FullPrecision, Half
from horovod_sylvie.halo.convert import convert_model
from horovod_sylvie.halo.delta import Delta
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.halo.message import header_rows
from horovod_sylvie.halo.packed_codec import Bits, OneBit
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.on_partitions import run_on_partitions
from tests.halo.test_smaller_side import GRAPH, OneLayer

WIDE = 64
ROW_BYTES = 4 + 3  # of three products with 8 bits, instead of 4 + 8


@pytest.mark.parametrize(
    ("codec", "num_inputs", "num_products", "expected"),
    [
        (FullPrecision(), 8, 7, FullPrecision()),
        (FullPrecision(), 8, 8, None),
        (Half(), 8, 7, Half()),
        (Half(), 7, 8, None),
        (OneBit(), 256, 8, Bits(8)),  # 12 bytes instead of 36
        (OneBit("centroid"), 256, 41, Bits(4)),  # 25
        (OneBit(), 256, 64, Bits(2)),  # 20
        (OneBit(), 256, 128, None),  # 36 with 2 bits
        (OneBit(), 64, 15, Bits(2)),  # 8 instead of 12
        (OneBit(), 8, 3, None),  # 5 instead of 5 with 1 or 2 bits
        (Bits(4), 64, 32, None),  # 36 instead of 36 with 8
        (Bits(4), 64, 16, Bits(8)),
        (Bits(8), 64, 16, Bits(8)),
        (Bits(8), 64, 64, None),
    ],
)
def test_products_travel_with_more_bits_in_fewer_bytes(
    codec: Codec, num_inputs: int, num_products: int, expected: Codec | None
) -> None:
    chosen = codec.for_products(num_inputs, num_products)
    assert chosen == expected
    if chosen is not None:
        rows, products = (
            each.row_bytes(width, torch.float32)
            for each, width in ((codec, num_inputs), (chosen, num_products))
        )
        assert products < rows


@pytest.mark.parametrize(
    "codec", [OneBit("centroid"), Automatic(OneBit("centroid"), epochs_each=1)]
)
def test_products_of_coarse_rows_are_sent_with_their_own_bits(
    tmp_path: Path, codec: Codec | Automatic
) -> None:
    model = OneLayer(GCNConv(WIDE, 3), WIDE)
    copies = [copy.deepcopy(model) for _ in range(2)]

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, codec, comm=comm)
        model = convert_model(copies[comm.rank], halo)
        for _ in range(3):
            model(part.x, part.edge_index).sum().backward()
            halo.end_epoch()
        formats = halo.parts.formats
        rows = torch.zeros(part.num_inner, 3)
        for direction in ("forward", "backward"):
            format_ = formats.of(rows, "conv", direction)
            assert format_.identifier in (Bits(8).identifier, FullPrecision().identifier)
        if isinstance(codec, OneBit):
            for direction, num_rows in (
                ("forward", len(halo.plan.send_index)),
                ("backward", halo.plan.num_halo),
            ):
                sent = halo.traffic.entries["conv", direction].bytes_sent
                assert sent == 3 * ROW_BYTES * (num_rows + header_rows(ROW_BYTES))

    run_on_partitions(GRAPH, tmp_path, 2, body)


@pytest.mark.parametrize(
    "options", [{"codec": Delta(OneBit("centroid"))}, {"bits": BudgetBits(4000)}]
)
def test_rows_travel_where_changes_do_and_where_bits_are_planned(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        halo = HaloExchange(part, **options, comm=comm)
        model = convert_model(OneLayer(GCNConv(WIDE, 3), WIDE), halo)
        assert type(model.conv.lin) is Linear
        assert not halo.parts.formats.products

    run_on_partitions(GRAPH, tmp_path, 2, body)
