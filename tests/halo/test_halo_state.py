"""Checkpoints of halo exchanges: a run that was stopped equals one that never was."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from tests.halo.door_training import GRAPH, MODES, Training
from tests.halo.on_partitions import run_on_partitions


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize(
    "compression", [hvs.Compression.none, hvs.Compression.topk(density=0.2, min_elements=16)]
)
def test_resumed_run_equals_one_that_never_stopped(
    tmp_path: Path, mode: str, compression: Any
) -> None:
    options = MODES[mode] | {"compression": compression}
    states: dict[int, dict[str, Any]] = {}

    def whole(comm: LoopbackCommunicator, part: hvs.Partition) -> Any:
        training = Training(comm, part, **options)
        first = training.epochs(5)
        states[comm.rank] = training.state()
        later = training.epochs(6)
        training.halo.drain()
        return first, later, training.parameters()

    def rest(comm: LoopbackCommunicator, part: hvs.Partition) -> Any:
        training = Training(comm, part, **options)
        training.load(states[comm.rank])
        assert training.halo.epoch == 5
        later = training.epochs(6)
        training.halo.drain()
        return later, training.parameters()

    never_stopped = run_on_partitions(GRAPH, tmp_path, 3, whole)
    again = run_on_partitions(GRAPH, tmp_path / "again", 3, whole)
    resumed = run_on_partitions(GRAPH, tmp_path / "rest", 3, rest)
    for (first, later, parameters), other, (late, ended) in zip(
        never_stopped, again, resumed, strict=True
    ):
        assert (first, later) == other[:2] and torch.equal(parameters, other[2])  # deterministic
        assert later == late  # to the last bit
        assert torch.equal(parameters, ended)
    assert torch.equal(never_stopped[0][2], never_stopped[2][2])


def test_state_survives_torch_save_with_weights_only(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        training = Training(comm, part, **MODES["budget"])
        training.epochs(4)
        file = tmp_path / f"{comm.rank}.pt"
        torch.save(training.state(), file)
        loaded = torch.load(file, weights_only=True)
        other = Training(comm, part, **MODES["budget"])
        other.load(loaded)
        losses = training.epochs(2)
        training.halo.drain()  # the other one has the same names
        assert losses == other.epochs(2)

    run_on_partitions(GRAPH, tmp_path, 2, body)


@pytest.mark.parametrize("mode", ["pipelined", "delta", "adaptive degree", "budget"])
def test_resumed_on_other_ranks_goes_on(
    tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    states: dict[int, dict[str, Any]] = {}

    def before(comm: LoopbackCommunicator, part: hvs.Partition) -> float:
        training = Training(comm, part, **MODES[mode])
        losses = training.epochs(6)
        states[comm.rank] = training.state()
        return losses[-1]

    def after(comm: LoopbackCommunicator, part: hvs.Partition) -> tuple[float, float]:
        training = Training(comm, part, **MODES[mode])
        training.load(states[0])
        assert training.halo.epoch == 6
        losses = training.epochs(8)
        training.halo.drain()
        return losses[0], losses[-1]

    loss = sum(run_on_partitions(GRAPH, tmp_path, 3, before))
    results = run_on_partitions(GRAPH, tmp_path, 2, after)
    assert sum(first for first, _ in results) < loss * 1.1
    assert sum(last for _, last in results) < loss


def test_ranks_that_load_one_ranks_file_go_on_alike(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    states: dict[int, dict[str, Any]] = {}

    def before(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        training = Training(comm, part, **MODES["bounded"])
        training.epochs(4)
        states[comm.rank] = training.state()

    def after(
        comm: LoopbackCommunicator, part: hvs.Partition
    ) -> tuple[tuple[tuple[str, ...], ...], torch.Tensor]:
        training = Training(comm, part, **MODES["bounded"])
        training.load(copy.deepcopy(states[0]))  # on every rank
        stale = []
        for _ in range(3):
            training.epochs(1)
            assert training.halo.last_epoch is not None
            stale.append(training.halo.last_epoch.stale)
        assert training.halo.epoch == 7
        training.halo.drain()
        return tuple(stale), training.parameters()

    run_on_partitions(GRAPH, tmp_path, 3, before)
    with caplog.at_level(logging.WARNING, logger="horovod_sylvie.halo"):
        results = run_on_partitions(GRAPH, tmp_path / "after", 3, after)
    stale, parameters = results[0]
    assert stale == ((), (), stale[2]) and stale[2]  # nothing to go on with, then something
    for other, weights in results[1:]:
        assert other == stale and torch.equal(weights, parameters)
    (warning,) = [each.getMessage() for each in caplog.records if "halo state" in each.getMessage()]
    assert "Save one file per rank" in warning


def test_damaged_state_raises_and_changes_nothing(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        training = Training(comm, part, **MODES["bounded"])
        training.epochs(3)
        state = training.halo.state_dict()
        shared = state["shared"]
        for change, text in (
            ({"version": 7}, "expected version 1 of the halo state, got 7"),
            (
                {"shared": 3},
                "expected something of type dict for 'shared' of the halo",
            ),
            ({"shared": shared | {"epoch": "x"}}, "expected something of type int for 'epoch'"),
            ({"shared": shared | {"epoch": -1}}, "expected something of type int for 'epoch'"),
            ({"shared": shared | {"trend": [1.5]}}, "LossTrend.from_numbers"),
            ({"shared": shared | {"chosen": "yes"}}, "expected True, False or None for 'chosen'"),
            ({"steps": {"x": "1"}}, "expected a number of exchanges for 'x'"),
            ({"kept": {"convs.1|forward": 3}}, "expected an epoch, a drift and rows for 'convs.1"),
            ({"bits": {"convs.1|forward": {"version": 1, "sent": 0, "received": 0}}}, "expected"),
            ({"streams": {"convs.1": {"exchanges": 1, "sent": torch.ones(1, 2)}}}, "finite rows"),
            (
                {"kept": {"convs.1|forward": {"epoch": 2, "drift": 0.1, "rows": torch.ones(1, 2)}}},
                r"expected \d+ finite rows for 'convs.1|forward'",
            ),
            ({"sent": {"convs.1.forward": torch.ones(1, 2)}}, "finite rows for 'convs.1.forward'"),
        ):
            with pytest.raises(ValueError, match=text):
                training.halo.load_state_dict(state | change)
        del state["kept"]
        with pytest.raises(ValueError, match=r"without \['kept'\]. It was saved by another"):
            training.halo.check_state_dict(state)
        assert training.halo.epoch == 3 and training.halo.parts.pipeline.kept

    run_on_partitions(GRAPH, tmp_path, 2, body)


@pytest.mark.parametrize("mode", ["pipelined", "delta", "adaptive degree", "budget", "bounded"])
def test_state_is_whole_where_nobody_ends_the_epochs(tmp_path: Path, mode: str) -> None:
    """Without the door an epoch ends with the next forward pass, or when its state is asked for."""

    def train(training: Training, number: int) -> list[float]:
        losses = []
        optimizer = torch.optim.SGD(training.model.parameters(), lr=0.05)
        for _ in range(number):
            optimizer.zero_grad()
            loss = training.loss()
            loss.backward()
            for each in training.model.parameters():
                training.halo.comm.allreduce_(each.grad, name="gradient").wait()
            optimizer.step()
            losses.append(float(loss.detach()))
        return losses

    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        first = Training(comm, part, door=False, **MODES[mode])
        train(first, 4)
        state = copy.deepcopy({"model": first.model.state_dict(), "halo": first.halo.state_dict()})
        later = train(first, 4)
        first.halo.drain()
        other = Training(comm, part, door=False, **MODES[mode])
        other.model.load_state_dict(state["model"])
        other.halo.load_state_dict(state["halo"])
        assert train(other, 4) == later
        other.halo.drain()

    run_on_partitions(GRAPH, tmp_path, 3, body)


def test_state_after_a_skipped_step_goes_on(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        training = Training(comm, part, **MODES["pipelined"])
        training.epochs(4)
        training.loss().backward()
        training.optimizer.synchronize()
        training.optimizer.zero_grad()
        state = training.state()
        losses = training.epochs(3)
        training.halo.drain()
        other = Training(comm, part, **MODES["pipelined"])
        other.load(state)
        assert other.halo.epoch == 5 and other.epochs(3) == losses
        other.halo.drain()
        training.loss()
        with pytest.raises(RuntimeError, match="state_dict: expected to be called between two"):
            training.halo.state_dict()

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_state_stays_what_it_was_while_training_goes_on(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        training = Training(comm, part, **MODES["bounded"])
        training.epochs(4)
        state = training.halo.state_dict()
        kept = copy.deepcopy(state)
        training.epochs(2)
        for name, rows in state["sent"].items():
            assert torch.equal(rows, kept["sent"][name])
        for name, entry in state["kept"].items():
            assert torch.equal(entry["rows"], kept["kept"][name]["rows"])

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_other_options_are_not_taken_from_a_state(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        training = Training(comm, part, bits=hvs.DegreeBits(base=1))
        training.epochs(2)
        other = Training(comm, part, bits=hvs.DegreeBits(base=8))
        other.load(training.state())
        other.epochs(2)
        planner = other.halo.parts.bits
        assert planner is not None and planner.trend is not None and planner.trend.base == 8
        assert planner.tables["convs.1", "forward"].sent.unique().tolist() == [8]

    run_on_partitions(GRAPH, tmp_path, 2, body)
