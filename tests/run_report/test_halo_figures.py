"""Figures of an epoch are differences of the ledger, and the newest epoch's report."""

from __future__ import annotations

import math
from typing import Any

import pytest

import horovod_sylvie as hvs
from horovod_sylvie.halo.epoch_report import LayerReport
from horovod_sylvie.halo.traffic import ExchangeTimes, Traffic
from horovod_sylvie.run_report.halo_figures import HaloReader


class Halo:
    """What a halo exchange shows of itself."""

    def __init__(self) -> None:
        self.traffic = hvs.TrafficLedger()
        self.staleness: hvs.Staleness = hvs.BoundedStaleness(max_drift=0.25)
        self.last_epoch: hvs.EpochReport | None = None

    def train(self, epoch: int, *, sent: int = 10) -> None:
        """Exchange one layer, forward and backward."""
        self.traffic.record("a", "forward", sent, 100)
        self.traffic.record("a", "backward", 2 * sent, 100)
        self.traffic.record_times("forward", ExchangeTimes(1.0, 2.0, 4.0))
        self.last_epoch = hvs.EpochReport(
            epoch,
            (
                LayerReport("a", "forward", True, 0.125, Traffic()),
                LayerReport("a", "backward", False, math.nan, Traffic()),
            ),
        )


def test_figures_are_those_since_the_last_ones() -> None:
    halo, reader = Halo(), HaloReader()
    halo.traffic.record("a", "features", 999, 999)
    for epoch, sent in enumerate((10, 30)):
        halo.train(epoch, sent=sent)
        figures = reader.read(halo)
        assert figures is not None
        assert figures.num_epochs == 1
        assert figures.forward == Traffic(1, sent, 100)
        assert figures.backward == Traffic(1, 2 * sent, 100)
        assert figures.times == ExchangeTimes(1.0, 2.0, 4.0)
        assert figures.exchanges == ("a.forward", "a.backward")
        assert figures.stale == ("a.forward",)
        assert figures.drift == {"a.forward": 0.125}
    assert reader.num_epochs == 2
    assert reader.entries["a", "forward"] == Traffic(2, 40, 200)
    assert reader.max_drift == 0.25


def test_epochs_that_were_not_added_are_counted() -> None:
    halo, reader = Halo(), HaloReader()
    for epoch in range(3):
        halo.train(epoch)
    figures = reader.read(halo)
    assert figures is not None
    assert (figures.num_epochs, figures.forward.bytes_sent) == (3, 30)


def test_no_epoch_of_training_has_no_figures() -> None:
    halo, reader = Halo(), HaloReader()
    assert reader.read(halo) is None
    halo.traffic.record("a", "evaluation", 5, 5)
    assert reader.read(halo) is None
    assert reader.num_epochs == 0


def test_epoch_that_nobody_has_ended_yet_has_bytes_alone() -> None:
    halo, reader = Halo(), HaloReader()
    halo.train(0)
    halo.last_epoch = None
    figures = reader.read(halo)
    assert figures is not None
    assert (figures.exchanges, figures.stale, figures.drift) == ((), (), {})


def test_other_rules_have_no_bound() -> None:
    halo, reader = Halo(), HaloReader()
    halo.staleness = hvs.Pipelined()
    reader.read(halo)
    assert reader.max_drift is None


@pytest.mark.parametrize("given", [3, object(), hvs.TrafficLedger()])
def test_what_is_no_halo_exchange_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match=r"expected an hvs.HaloExchange for 'halo', got"):
        HaloReader().read(given)


def test_another_halo_exchange_is_refused() -> None:
    reader = HaloReader()
    reader.read(Halo())
    with pytest.raises(ValueError, match="expected the same 'halo' in every epoch"):
        reader.read(Halo())
