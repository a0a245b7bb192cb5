"""A rank of the epoch benchmark takes turns with all ways, in step with the other ranks."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from epoch_model import MODELS, make_model
from epoch_rank import Size, Trainer, make_trainers, measure_alone, run_job
from epoch_ways import FULL_PRECISION, NO_EXCHANGE, WAYS, make_halo, make_optimizer
from step_rank import Contender, Pace
from torch import nn

import horovod_sylvie as hvs
from tests.halo.on_partitions import run_on_partitions
from tests.reference_training import make_graph

GRAPH = make_graph()
SHORT = Pace(num_rounds=2, turn_s=0.0)


def small(model: str = "sage") -> Size:
    return Size(model, hidden=32)


@pytest.mark.parametrize("compute", ["real", "emulated"])
@pytest.mark.parametrize("model", MODELS)
def test_job_measures_every_way_in_every_round(tmp_path: Path, model: str, compute: str) -> None:
    def body(comm: hvs.LoopbackCommunicator, part: hvs.Partition) -> dict[str, Any]:
        return run_job(small(model), compute, WAYS, part, comm, SHORT)

    for report in run_on_partitions(GRAPH, tmp_path, 2, body):
        assert list(report["ways"]) == list(WAYS)
        for way, figures in report["ways"].items():
            low, high = figures["quartiles_s"]
            assert 0 < low <= figures["epoch_s"] <= high
            assert figures["num_epochs"] == SHORT.num_rounds
            assert (figures["bytes_sent"] == 0) == (way == NO_EXCHANGE)
            assert (figures["halo_bytes_sent"] == 0) == (way == NO_EXCHANGE)
        ways = report["ways"]
        assert ways[FULL_PRECISION]["compression"] == 1.0
        assert ways["one bit"]["halo_bytes_sent"] < ways["half precision"]["halo_bytes_sent"]
        assert ways["one bit"]["halo_bytes_sent"] == ways["one bit pipelined"]["halo_bytes_sent"]
        assert ways["automatic"]["halo_bytes_sent"] in {
            ways[way]["halo_bytes_sent"] for way in (FULL_PRECISION, "one bit")
        }
        assert ways["one bit"]["stale_share"] == 0.0
        assert ways["one bit pipelined"]["stale_share"] == 1.0
        assert sum(report["inner_rows"]) == GRAPH.num_nodes
        assert ("emulated_s" in report) == (compute == "emulated")


def test_rows_that_change_little_are_used_an_epoch_late(tmp_path: Path) -> None:
    def body(comm: hvs.LoopbackCommunicator, part: hvs.Partition) -> dict[str, Any]:
        return run_job(small(), "emulated", ["one bit bounded"], part, comm, SHORT)

    for report in run_on_partitions(GRAPH, tmp_path, 2, body):
        assert report["ways"]["one bit bounded"]["stale_share"] == 1.0


def test_each_rank_is_measured_while_the_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[int] = []

    def measure(model: nn.Module, loss_of: Any, halo: hvs.HaloExchange) -> int:
        assert not running
        running.append(halo.comm.rank)
        time.sleep(0.02)
        assert running.pop() == halo.comm.rank and not running
        return halo.comm.rank

    monkeypatch.setattr("epoch_rank.measure_epoch", measure)

    def body(comm: hvs.LoopbackCommunicator, part: hvs.Partition) -> Any:
        return measure_alone(small(), part, comm)

    assert run_on_partitions(GRAPH, tmp_path, 3, body) == [0, 1, 2]


class SlowingOptimizer:
    """Counts steps, and each takes longer than the one before by the clock that it moves."""

    def __init__(self, clock: SimpleNamespace) -> None:
        self.num_steps = 0
        self.clock = clock

    def zero_grad(self) -> None:
        pass

    def step(self) -> None:
        self.num_steps += 1
        self.clock.now_s += self.num_steps


def make_trainer(monkeypatch: pytest.MonkeyPatch, step_s: float = 0.0) -> Trainer:
    clock = SimpleNamespace(now_s=0.0)
    clock.perf_counter = lambda: clock.now_s
    monkeypatch.setattr("step_rank.time", clock)
    weight = torch.zeros(1, requires_grad=True)
    optimizer = SlowingOptimizer(clock)
    contender = Contender(
        "half precision", nn.Linear(1, 1), lambda: weight.sum(), optimizer, step_s=step_s
    )
    halo: Any = SimpleNamespace(
        num_drains=0,
        last_epoch=SimpleNamespace(stale=("a",), layers=("a", "b")),
        staleness=hvs.Synchronous(),
        codec=hvs.Half(),
        traffic=hvs.TrafficLedger(),
    )

    def drain() -> None:
        halo.num_drains += 1

    halo.drain = drain
    return Trainer(contender, halo)


def on_one_rank(body: Any) -> None:
    hvs.run_loopback(1, body)


def test_first_epoch_of_a_turn_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(monkeypatch, step_s=0.5)
    on_one_rank(lambda comm: trainer.take_turn(comm, Pace(turn_s=1.0)))
    assert trainer.contender.steps_s == [2.0, 3.0]
    assert trainer.contender.step_s == 2.5
    assert trainer.num_epochs == 3
    assert trainer.halo.num_drains == 1
    assert trainer.stale_shares == [0.5]


@pytest.mark.parametrize(("step_s", "num_epochs"), [(5.0, 1), (0.25, 4), (1e-6, 40), (0.0, 40)])
def test_turn_has_as_many_epochs_as_its_time_allows(
    step_s: float, num_epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(monkeypatch, step_s)
    on_one_rank(lambda comm: trainer.take_turn(comm, Pace(turn_s=1.0)))
    assert len(trainer.contender.steps_s) == num_epochs


@pytest.mark.parametrize(
    ("codec", "staleness", "num_epochs"),
    [
        (hvs.Half(), hvs.Synchronous(), 4),
        (hvs.Half(), hvs.Pipelined(), 13),
        (hvs.Half(), hvs.BoundedStaleness(), 13),
        (hvs.Automatic(hvs.OneBit()), hvs.Synchronous(), 13),
    ],
)
def test_warm_up_is_longer_where_an_exchange_has_to_settle(
    codec: Any, staleness: hvs.Staleness, num_epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(monkeypatch)
    trainer.halo.codec, trainer.halo.staleness = codec, staleness
    on_one_rank(trainer.warm_up)
    assert trainer.contender.optimizer.num_steps == num_epochs
    assert trainer.contender.steps_s == [] and trainer.num_epochs == 0
    assert trainer.contender.step_s == num_epochs - 1  # the median of the last three


def test_figures_count_what_was_sent_since_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(monkeypatch)
    ledger = trainer.halo.traffic
    ledger.record("a", "forward", 1000, 9000)
    ledger.record("a", "evaluation", 500, 500)
    trainer.traffic = ledger.total("forward", "backward")
    ledger.record("a", "forward", 60, 600)
    ledger.record("a", "backward", 40, 1400)
    trainer.num_epochs, trainer.stale_shares = 4, [0.5, 1.0]
    trainer.contender.steps_s = [5.0, 1.0, 2.0, 4.0, 3.0]
    groups = [SimpleNamespace(bytes_sent=7.0), SimpleNamespace(bytes_sent=3.0)]
    trainer.contender.optimizer.telemetry = lambda: SimpleNamespace(groups=groups, plan=None)
    figures: list[dict[str, Any]] = []
    on_one_rank(lambda comm: figures.append(trainer.figures(comm)))
    assert figures == [
        {
            "epoch_s": 3.0,
            "quartiles_s": [2.0, 4.0],
            "num_epochs": 5,
            "bytes_sent": 35.0,
            "halo_bytes_sent": 25.0,
            "compression": 20.0,
            "stale_share": 0.75,
        }
    ]


def test_seconds_are_those_of_the_slowest_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    trainers = [make_trainer(monkeypatch) for _ in range(3)]
    for trainer, seconds in zip(trainers, (1.0, 7.0, 2.0), strict=True):
        trainer.num_epochs, trainer.contender.steps_s = 1, [seconds]
    for figures in hvs.run_loopback(3, lambda comm: trainers[comm.rank].figures(comm)):
        assert figures["epoch_s"] == 7.0 and figures["quartiles_s"] == [7.0, 7.0]


def test_no_exchange_computes_with_zeros_and_sends_nothing(tmp_path: Path) -> None:
    def body(comm: hvs.LoopbackCommunicator, part: hvs.Partition) -> None:
        halo = make_halo(NO_EXCHANGE, part, comm)
        x = torch.randn(part.num_inner, 4, requires_grad=True)
        rows = halo.extend(x, layer="a", training=True)
        assert torch.equal(rows[: part.num_inner], x)
        assert rows.shape == (part.num_inner + part.num_halo, 4)
        assert not rows[part.num_inner :].any()
        rows.sum().backward()
        assert torch.equal(x.grad, torch.ones_like(x))
        assert halo.traffic.total().bytes_sent == 0
        features = halo.extend(part.x, layer="b", training=True)
        assert features[part.num_inner :].any()  # fetched once, as by every other way
        model, _ = make_model("sage", NO_EXCHANGE, part, halo, hidden=8, layers=2)
        assert type(make_optimizer(NO_EXCHANGE, model, halo)) is torch.optim.Adam

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_ways_have_names_of_their_own_for_all_that_travels(tmp_path: Path) -> None:
    def body(comm: hvs.LoopbackCommunicator, part: hvs.Partition) -> None:
        seen: set[str] = set()
        for trainer in make_trainers(small(), WAYS, part, comm, None):
            trainer.run(0)
            way = trainer.contender.way
            layers = {layer for layer, _ in trainer.halo.traffic.entries}
            names = {name for name, _ in trainer.contender.model.named_parameters()}
            assert layers and all(each.startswith(f"{way}.") for each in layers | names)
            assert seen.isdisjoint(layers | names)
            seen |= layers | names

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_unknown_way_and_model_are_refused(tmp_path: Path) -> None:
    def body(comm: hvs.LoopbackCommunicator, part: hvs.Partition) -> None:
        with pytest.raises(ValueError, match="expected one of .* for 'way', got 'pigeon'"):
            make_halo("pigeon", part, comm)
        halo = make_halo("half precision", part, comm)
        with pytest.raises(ValueError, match="expected one of .* for 'kind', got 'mlp'"):
            make_model("mlp", "x", part, halo, hidden=8, layers=2)

    run_on_partitions(GRAPH, tmp_path, 2, body)
