"""A graph network is measured between its exchanges, and its emulation makes the same exchanges."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import emulated_gnn
import pytest
import torch
import traced_gnn
from emulated_gnn import DRIFT, EmulatedGNN, SlowValues
from epoch_model import MODELS, make_model
from torch import Tensor, nn
from traced_gnn import EpochTimes, ExchangeTimes, Segment, TracedHalo, measure_epoch

import horovod_sylvie as hvs
from tests.halo.on_partitions import run_on_partitions
from tests.reference_training import HIDDEN, NUM_CLASSES, make_graph

GRAPH = make_graph()
INSTANT = Segment(0.0, 0.0)


def build(model: str, part: hvs.Partition, halo: hvs.HaloExchange, way: str = "x") -> Any:
    return make_model(model, way, part, halo, hidden=HIDDEN, layers=3)


def measured(model: str, part: hvs.Partition, comm: hvs.LoopbackCommunicator) -> EpochTimes:
    halo = TracedHalo(part, comm)
    network, loss_of = build(model, part, halo, "alone")
    loss_of()
    return measure_epoch(network, loss_of, halo, epochs=1)


def instant(times: EpochTimes) -> EpochTimes:
    exchanges = tuple(
        dataclasses.replace(each, meanwhile=INSTANT, after=INSTANT, at_once=INSTANT)
        for each in times.exchanges
    )
    return EpochTimes(INSTANT, times.first_names, exchanges)


@pytest.mark.parametrize("model", MODELS)
def test_measured_epoch_has_each_exchange_and_each_parameter_once(
    tmp_path: Path, model: str
) -> None:
    def body(comm: hvs.LoopbackCommunicator, part: hvs.Partition) -> None:
        times = measured(model, part, comm)
        assert [each.layer for each in times.exchanges] == ["convs.1", "convs.2"]
        # The last layer's product is narrower than its input; features are not exchanged
        assert [each.width for each in times.exchanges] == [HIDDEN, NUM_CLASSES]
        names = [*times.first_names, *(name for each in times.exchanges for name in each.names)]
        network, _ = build(model, part, hvs.HaloExchange(part, comm=comm))
        assert sorted(names) == sorted(
            name.removeprefix("x.") for name, _ in network.named_parameters()
        )
        for segment in (times.first, *(each.at_once for each in times.exchanges)):
            assert segment.forward_s > 0 and segment.backward_s > 0

    run_on_partitions(GRAPH, tmp_path, 2, body, method="metis")


def test_marks_become_segments_in_the_order_of_forward() -> None:
    marks = ["begin", "start 0", "finish 0", "start 1", "finish 1", "turn"]
    marks += ["c", "leave 1", "come 1", "b", "leave 0", "b2", "come 0", "a", "end"]
    when_s = [0.0, 1.0, 3.0, 6.0, 10.0, 15.0, 16.0, 17.0, 20.0, 23.0, 25.0, 27.0, 30.0, 31.0, 36.0]
    timed = list(zip(when_s, marks, strict=True))
    assert traced_gnn._segments(timed, 2) == [
        Segment(1.0, 6.0),  # come 0 to end
        Segment(2.0, 5.0),  # leave 0 to come 0
        Segment(3.0, 5.0),  # come 1 to leave 0
        Segment(4.0, 3.0),  # leave 1 to come 1
        Segment(5.0, 2.0),  # turn to leave 1
    ]
    assert traced_gnn._names_by_exchange(marks, 2) == [("a",), ("b", "b2"), ("c",)]


def test_whole_epoch_is_the_first_segment_and_all_that_need_not_wait() -> None:
    segments = [Segment(1.0, 2.0), Segment(10.0, 20.0), Segment(100.0, 200.0)]
    exchange = ExchangeTimes("a", 4, None, (), segments[1], segments[1], segments[2])
    assert EpochTimes(segments[0], (), (exchange, exchange)).whole == Segment(201.0, 402.0)


@pytest.mark.parametrize("staleness", [hvs.Synchronous(), hvs.Pipelined(warmup=1)])
@pytest.mark.parametrize("model", MODELS)
def test_emulation_makes_the_exchanges_of_the_model_and_hands_out_all_gradients(
    tmp_path: Path, model: str, staleness: hvs.Staleness
) -> None:
    def trained(halo: hvs.HaloExchange) -> list[Any]:
        assert halo.last_epoch is not None
        layers = [
            (each.layer.partition(".")[2], each.direction, each.is_stale, each.traffic)
            for each in halo.last_epoch.layers
        ]
        return [*layers, halo.traffic.total("forward", "backward")]

    def body(comm: hvs.LoopbackCommunicator, part: hvs.Partition) -> None:
        times = instant(measured(model, part, comm))
        halos = [
            hvs.HaloExchange(part, hvs.Bits(8), staleness=staleness, comm=comm) for _ in range(2)
        ]
        real, loss_of = build(model, part, halos[0], "real")
        network, _ = build(model, part, halos[1], "emulated")
        values = SlowValues(HIDDEN * 200, seed=comm.rank)
        loss_of_emulated = EmulatedGNN(network, times, halos[1], values, "emulated.")
        for _ in range(3):
            for loss, halo in ((loss_of, halos[0]), (loss_of_emulated, halos[1])):
                loss().backward()
                halo.end_epoch()
        assert trained(halos[0]) == trained(halos[1])
        assert len(trained(halos[0])) == 5  # two layers, two directions, and the total
        for halo in halos:
            halo.drain()
        for (name, mine), theirs in zip(network.named_parameters(), real.parameters(), strict=True):
            assert mine.grad is not None, name
            assert mine.grad.shape == theirs.grad.shape and mine.grad.any()

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_rows_change_from_epoch_to_epoch_as_little_as_is_said(tmp_path: Path) -> None:
    def body(comm: hvs.LoopbackCommunicator, part: hvs.Partition) -> list[float]:
        times = instant(measured("sage", part, comm))
        bounded = hvs.BoundedStaleness(max_drift=0.0)
        halo = hvs.HaloExchange(part, hvs.FullPrecision(), staleness=bounded, comm=comm)
        network, _ = build("sage", part, halo)
        loss_of = EmulatedGNN(network, times, halo, SlowValues(HIDDEN * 200, comm.rank), "x.")
        for _ in range(4):
            loss_of().backward()
            halo.end_epoch()
        assert halo.last_epoch is not None
        return [each.drift for each in halo.last_epoch.layers]

    for drifts in run_on_partitions(GRAPH, tmp_path, 2, body):
        assert len(drifts) == 4
        assert drifts == pytest.approx([DRIFT] * 4, rel=0.2)


def test_values_are_of_their_own_memory_and_change_little() -> None:
    values = SlowValues(1000, seed=0)
    first, second = (values.of_shape((20, 50), "a") for _ in range(2))
    other = values.of_shape((20, 50), "b")
    assert first.shape == (20, 50) and first.data_ptr() != second.data_ptr()
    assert 0 < (second - first).norm() < 2 * DRIFT * first.norm()
    assert (other - first).norm() > first.norm()


class Rows:
    def __init__(self, x: Tensor, *, is_ready: bool, log: list[Any]) -> None:
        self.x, self.is_ready, self._log = x, is_ready, log

    def finish(self) -> Tensor:
        self._log.append("finish")
        return torch.zeros(3, self.x.shape[1], requires_grad=True)


@pytest.mark.parametrize(
    ("is_ready", "expected"),
    [
        (False, [1.0, "a", 3.0, "finish", 5.0, 6.0, 4.0, 2.0]),
        (True, [1.0, "a", "finish", 7.0, 8.0, 2.0]),
    ],
)
def test_segments_sleep_around_the_exchanges(
    is_ready: bool, expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[Any] = []
    clock = SimpleNamespace(perf_counter=lambda: 0.0, sleep=log.append)
    monkeypatch.setattr(emulated_gnn, "time", clock)

    def start(x: Tensor, *, layer: str, training: bool) -> Rows:
        assert training and x.shape == (5, 4) and x.requires_grad
        log.append(layer.removeprefix("x."))
        return Rows(x, is_ready=is_ready, log=log)

    halo: Any = SimpleNamespace(start=start, plan=SimpleNamespace(num_inner=5))
    exchange = ExchangeTimes(
        "a", 4, None, ("bias",), Segment(3.0, 4.0), Segment(5.0, 6.0), Segment(7.0, 8.0)
    )
    times = EpochTimes(Segment(1.0, 2.0), ("weight",), (exchange,))
    model = nn.ModuleDict({"x": nn.Linear(2, 3)})
    loss = EmulatedGNN(model, times, halo, SlowValues(100, 0), "x.")()
    assert loss.shape == () and loss.item() == 0
    loss.backward()
    assert log == expected


def test_exchange_of_other_rows_than_were_measured_is_refused(tmp_path: Path) -> None:
    def body(comm: hvs.LoopbackCommunicator, part: hvs.Partition) -> None:
        times = measured("gcn", part, comm)
        assert [each.num_inputs for each in times.exchanges] == [None, HIDDEN]
        halo = hvs.HaloExchange(part, hvs.OneBit(), comm=comm)  # too narrow for it
        network, _ = build("gcn", part, halo)
        with pytest.raises(ValueError, match=r"sends products of 'convs.2' \(16 to 5 columns\)"):
            EmulatedGNN(network, times, halo, SlowValues(HIDDEN * 200, comm.rank), "x.")

    run_on_partitions(GRAPH, tmp_path, 2, body, method="metis")


@pytest.mark.parametrize(
    ("names", "named"), [(("weight",), "x.bias"), (("weight", "bias", "bias"), "a name twice")]
)
def test_times_of_other_parameters_are_refused(names: tuple[str, ...], named: str) -> None:
    model = nn.ModuleDict({"x": nn.Linear(2, 3)})
    halo: Any = None
    with pytest.raises(ValueError, match=f"once in 'times', but these differ: {named}. Measure"):
        EmulatedGNN(model, EpochTimes(INSTANT, names, ()), halo, SlowValues(100, 0), "x.")
