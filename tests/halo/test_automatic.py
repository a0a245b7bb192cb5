"""The trial of a codec: which epochs use it, which are measured, and what comes out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.automatic import Automatic, Trial
from horovod_sylvie.halo.codec import FullPrecision
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.halo.packed_codec import OneBit
from horovod_sylvie.halo.staleness import BoundedStaleness, Pipelined
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.on_partitions import run_on_partitions
from tests.reference_training import make_graph

GRAPH = make_graph(num_nodes=40)


def test_trial_measures_full_precision_then_the_codec() -> None:
    trial = Trial(Automatic(OneBit(), epochs_each=2))
    used = []
    for number in range(7):
        used.append(trial.uses_codec)
        assert not trial.is_complete
        trial = trial.after(float(number))
    # full: epochs 0 (set up), 1 (not measured), 2, 3; codec: 4 (not measured), 5, 6
    assert used == [False] * 4 + [True] * 3
    assert trial.times_s == (2.0, 3.0, 5.0, 6.0)
    assert trial.is_complete and trial.medians_s == (2.5, 5.5)
    assert trial.after(9.0) == trial


@pytest.mark.parametrize(("full_s", "codec_s", "chosen"), [(2.0, 1.0, True), (1.0, 1.0, False)])
def test_faster_one_is_chosen_and_stays(full_s: float, codec_s: float, chosen: bool) -> None:
    trial = Trial(Automatic(OneBit(), epochs_each=1)).decided(full_s, codec_s)
    assert trial.chosen is trial.uses_codec is chosen
    assert trial.after(1.0).uses_codec is chosen


def test_trial_begins_when_old_rows_are_used_as_later_on(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> list[int]:
        rule = Pipelined(warmup=3)
        codec = Automatic(OneBit(), epochs_each=1)
        halo = HaloExchange(part, codec, staleness=rule, comm=comm)
        counts = []
        for _ in range(6):
            halo.extend(
                torch.ones(part.num_inner, 8, requires_grad=True), layer="a", training=True
            ).sum().backward()
            halo.end_epoch()
            assert halo.parts.formats.trial is not None
            counts.append(halo.parts.formats.trial.num_epochs)
        halo.drain()
        return counts

    assert set(map(tuple, run_on_partitions(GRAPH, tmp_path, 2, body))) == {(0, 0, 0, 1, 2, 3)}


def test_trial_with_rows_that_get_older_is_refused(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        with pytest.raises(ValueError, match="expected another codec than Automatic with Bounded"):
            HaloExchange(part, Automatic(OneBit()), staleness=BoundedStaleness(), comm=comm)

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_bad_options_raise() -> None:
    for codec in (FullPrecision(), "1"):
        with pytest.raises(TypeError, match="Automatic: expected a Codec other than FullPrecision"):
            Automatic(codec)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected a number of epochs from 1 for 'epochs_each'"):
        Automatic(OneBit(), epochs_each=0)


def test_ranks_choose_alike_whatever_each_measured(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> tuple[bool | None, list[float]]:
        halo = HaloExchange(part, Automatic(OneBit(), epochs_each=1), comm=comm)
        ratios = []
        for _ in range(7):
            x = torch.ones(part.num_inner, 64, requires_grad=True)
            halo.extend(x, layer="conv", training=True).sum().backward()
            halo.end_epoch()
            assert halo.last_epoch is not None
            ratios.append(halo.last_epoch.layers[0].compression)
        assert halo.parts.formats.trial is not None
        return halo.parts.formats.trial.chosen, ratios

    results = run_on_partitions(GRAPH, tmp_path, 3, body)
    chosen = {choice for choice, _ in results}
    assert len(chosen) == 1 and chosen <= {True, False}
    for _, ratios in results:  # full, full, full, codec (not measured), codec, then the faster
        assert all(ratio == 1 for ratio in ratios[:3]) and all(ratio > 3 for ratio in ratios[3:5])
