"""Gathering: every rank gets all figures, and ranks that noted other things are told."""

from __future__ import annotations

import math

import pytest
import torch

import horovod_sylvie as hvs
from horovod_sylvie.halo.traffic import ExchangeTimes, Traffic
from horovod_sylvie.run_report.epoch_figures import COLUMNS, EpochFigures, Gathered, gather
from horovod_sylvie.run_report.gradient_figures import GradientFigures
from horovod_sylvie.run_report.halo_figures import HaloFigures

GRADIENTS = GradientFigures(4, 100.0, 1000.0, 0.5, 0.25, 0.125, 0.1, {"a": 0.1}, {}, "")
HALO = HaloFigures(
    2, Traffic(2, 60, 600), Traffic(2, 20, 400), ExchangeTimes(2.0, 4.0, 8.0), (), (), {}
)


def figures(
    epoch: int = 1,
    *,
    seconds: float | None = None,
    steps: int | None = None,
    gradients: GradientFigures | None = None,
    halo: HaloFigures | None = None,
) -> EpochFigures:
    return EpochFigures(epoch, None, {}, {}, seconds, steps, gradients, halo)


def columns_of(each: EpochFigures) -> dict[str, float]:
    columns = dict(zip(COLUMNS, each.row(), strict=True))
    return {name: value for name, value in columns.items() if not math.isnan(value)}


def test_columns_are_those_of_what_is_known() -> None:
    assert columns_of(figures()) == {}
    assert columns_of(figures(seconds=3.0)) == {"seconds": 3.0}
    assert columns_of(figures(gradients=GRADIENTS)) == {
        "selecting_s": 2.0,
        "waiting_for_gradients_s": 1.0,
        "decoding_s": 0.5,
        "gradient_bytes_sent": 100.0,
        "gradient_bytes_dense": 1000.0,
    }


def test_times_are_of_all_steps_where_their_number_is_known() -> None:
    assert columns_of(figures(gradients=GRADIENTS, steps=10))["selecting_s"] == 5.0


def test_columns_of_halo_rows_are_per_epoch_and_decoding_adds_up() -> None:
    assert columns_of(figures(halo=HALO)) == {
        "encoding_s": 1.0,
        "waiting_for_rows_s": 2.0,
        "decoding_s": 4.0,
        "forward_bytes_sent": 30.0,
        "forward_bytes_full_precision": 300.0,
        "backward_bytes_sent": 10.0,
        "backward_bytes_full_precision": 200.0,
    }
    assert columns_of(figures(halo=HALO, gradients=GRADIENTS))["decoding_s"] == 4.5


@pytest.mark.parametrize("size", [1, 3])
def test_every_rank_gets_all_columns_and_the_sum_of_layers(size: int) -> None:
    def body(comm: hvs.LoopbackCommunicator) -> Gathered:
        epochs = [figures(epoch, seconds=10.0 * epoch + comm.rank) for epoch in (1, 2)]
        entries = {("a", "forward"): Traffic(1, 10 + comm.rank, 100)}
        return gather(comm, epochs, entries)  # type: ignore[arg-type]

    for gathered in hvs.run_loopback(size, body):
        assert gathered.columns.shape == (size, 2, len(COLUMNS))
        seconds = gathered.columns[:, :, COLUMNS.index("seconds")]
        assert seconds.tolist() == [[10.0 + rank, 20.0 + rank] for rank in range(size)]
        sent = 10 * size + sum(range(size))
        assert gathered.layers.tolist() == [[sent, 100 * size]]


def test_no_epoch_is_gathered_too() -> None:
    for gathered in hvs.run_loopback(2, lambda comm: gather(comm, [], {})):
        assert gathered.columns.shape == (2, 0, len(COLUMNS))
        assert gathered.layers.shape == (0, 2)
        assert gathered.columns.dtype == torch.float64


@pytest.mark.parametrize(
    "other",
    [[], [figures(2)], [figures(), figures(2)], [figures(seconds=1.0)], [figures(halo=HALO)]],
)
def test_ranks_that_noted_other_things_are_told_together(other: list[EpochFigures]) -> None:
    def body(comm: hvs.LoopbackCommunicator) -> None:
        with pytest.raises(hvs.PeerError, match=r"differ in epochs of the run report .*1 epochs"):
            gather(comm, other if comm.rank == 1 else [figures()], {})

    hvs.run_loopback(2, body)
