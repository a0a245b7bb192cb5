"""Halo exchanges on paper, against arithmetic by hand and against what an exchange sends."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.codec import Codec, FullPrecision, Half
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.halo.message import header_rows
from horovod_sylvie.halo.packed_codec import Bits, OneBit
from horovod_sylvie.partition.local_partition import Partition
from horovod_sylvie.planning.halo_forecast import (
    HaloRows,
    RowFormat,
    forecast_epoch,
    forecast_exchange,
)
from horovod_sylvie.planning.link_model import LinkModel, model_of_link
from tests.halo.on_partitions import run_on_partitions
from tests.partition.partition_cases import build_graph

# rank 0 sends 100 rows and receives 40, rank 1 the other way round
ROWS = HaloRows((100, 40), (40, 100))
# 1 us per byte, 1 ms per message, 2 ms per collective
LINK = model_of_link(2, 8e6, 1e-3, start_s=2e-3)


def full(width: int) -> int:
    return 4 * width


def one_row(row_bytes: int) -> int:
    del row_bytes
    return 1


def test_exchange_takes_as_long_as_its_busiest_direction() -> None:
    found = forecast_exchange(ROWS, 1, "forward", 5, RowFormat("32 bits", full, one_row), LINK)
    # 20 bytes a row: 140 rows and a header row from each rank
    assert found.nbytes == 140 * 20 + 2 * 20
    # 100 rows and a header row one way, whichever the other way
    assert found.link_s == pytest.approx(2e-3 + 1e-3 + 101 * 20 * 1e-6)
    assert found.codec_s == 0.0
    assert found.seconds == found.link_s
    assert (found.layer, found.direction, found.width) == (1, "forward", 5)


def test_three_ranks_send_a_header_to_each_peer() -> None:
    link = model_of_link(3, 8e6, 1e-3)
    rows = HaloRows((10, 0, 20), (5, 25, 0))
    found = forecast_exchange(rows, 0, "features", 5, RowFormat("32 bits", full, one_row), link)
    assert found.nbytes == (30 + 3 * 2) * 20
    assert found.link_s == pytest.approx(2 * 1e-3 + (25 + 2) * 20 * 1e-6)


def test_rank_with_most_to_encode_and_decode_is_waited_for() -> None:
    row_format = RowFormat("1 bit", full, one_row, 3e-6, 1e-6)
    found = forecast_exchange(ROWS, 1, "forward", 5, row_format, LINK)
    assert found.codec_s == pytest.approx(5 * (100 * 3e-6 + 40 * 1e-6))
    assert found.seconds == pytest.approx(found.link_s + found.codec_s)


def test_epoch_is_both_directions_of_each_layer() -> None:
    rows = HaloRows((100, 60), (60, 100))
    row_format = RowFormat("x", full, one_row, 3e-6, 0.0)
    found = forecast_epoch(rows, [5, 7], row_format, LINK)
    assert [(each.layer, each.direction, each.width) for each in found.exchanges] == [
        (1, "forward", 5),
        (1, "backward", 5),
        (2, "forward", 7),
        (2, "backward", 7),
    ]
    assert found.nbytes == sum(each.nbytes for each in found.exchanges) == 2 * 162 * (20 + 28)
    assert found.seconds == pytest.approx(sum(each.seconds for each in found.exchanges))
    assert found.name == "x"


def test_backward_sends_what_forward_received() -> None:
    rows = HaloRows((10, 0, 20), (5, 25, 0))
    row_format = RowFormat("x", full, one_row, 1e-6, 0.0)
    forward, backward = forecast_epoch(rows, [1], row_format, model_of_link(3, 8e6, 0.0)).exchanges
    assert forward.codec_s == pytest.approx(20e-6)
    assert backward.codec_s == pytest.approx(25e-6)
    assert forward.link_s == backward.link_s
    assert forward.nbytes == backward.nbytes


def test_format_pays_where_it_gains_more_than_a_twentieth() -> None:
    plain = RowFormat("plain", full, one_row)
    epochs = {
        seconds: forecast_epoch(ROWS, [5], RowFormat("x", lambda width: 1, one_row, seconds), LINK)
        for seconds in (0.0, 2e-6, 4e-6, 8e-6)
    }
    reference = forecast_epoch(ROWS, [5], plain, LINK)  # 2 x 5.02 ms
    assert reference.seconds == pytest.approx(10.04e-3)
    # 2 x (3.101 ms + 500 elements): 6.2, 8.2, 10.2, 14.2 ms
    assert [each.pays(reference) for each in epochs.values()] == [True, True, False, False]


CODECS: list[Codec] = [FullPrecision(), Half(), Bits(8), Bits(4), Bits(2), OneBit()]


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("size", [2, 3])
def test_predicted_bytes_are_those_that_an_exchange_sends(
    tmp_path: Path, codec: Codec, size: int
) -> None:
    widths = [3, 20]

    def body(comm: LoopbackCommunicator, part: Partition) -> tuple[int, int, int, int]:
        halo = HaloExchange(part, codec, comm=comm)
        halo.extend(torch.ones(part.num_inner, 5), layer="0", training=True)
        for layer, width in enumerate(widths, start=1):
            x = torch.randn(part.num_inner, width, requires_grad=True)
            halo.extend(x, layer=str(layer), training=True).sum().backward()
        total = halo.traffic.total
        once, epoch = total("features"), total("forward", "backward")
        return sum(part.send_splits), part.num_halo, once.bytes_sent, epoch.bytes_sent

    found = run_on_partitions(build_graph(30, 90), tmp_path, size, body)
    sent, received, once, epoch = (tuple(each) for each in zip(*found, strict=True))
    rows, link = HaloRows(sent, received), model_of_link(size, 1e9, 0.0)
    forecast = forecast_epoch(rows, widths, row_format_of(codec), link)
    assert forecast.nbytes == sum(epoch)
    features = forecast_exchange(rows, 0, "features", 5, row_format_of(FullPrecision()), link)
    assert features.nbytes == sum(once)


def row_format_of(codec: Codec) -> RowFormat:
    return RowFormat(str(codec), partial(codec.row_bytes, dtype=torch.float32), header_rows)


def test_nothing_to_send_still_costs_headers_and_a_start() -> None:
    link: LinkModel = model_of_link(2, 8e6, 1e-3)
    found = forecast_exchange(
        HaloRows((0, 0), (0, 0)), 1, "forward", 5, RowFormat("x", full, one_row), link
    )
    assert found.nbytes == 40
    assert found.link_s == pytest.approx(1e-3 + 20e-6)
