"""One optimizer for both kinds of traffic: order, messages, and misuse."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

import horovod_sylvie as hvs
from horovod_sylvie.comm.checked import CheckedCommunicator
from horovod_sylvie.comm.delayed import DelayedCommunicator
from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from tests import reference_training as reference
from tests.halo.door_training import GRAPH, MODES, Training
from tests.halo.on_partitions import run_on_partitions


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["sage", "gcn", "gat", "gin"])
def test_full_precision_equals_one_process(tmp_path: Path, kind: str, num_ranks: int) -> None:
    torch.manual_seed(1)
    model = reference.Network(kind, batch_norm=False)
    models = [copy.deepcopy(model) for _ in range(num_ranks)]
    expected = reference.train_whole(GRAPH, model, "adam")
    hvs.partition_graph(GRAPH, tmp_path / "parts", num_ranks)

    def train(comm: LoopbackCommunicator) -> list[float]:
        part = reference.load_in_turn(tmp_path / "parts", comm)
        halo = hvs.HaloExchange(part, hvs.FullPrecision(), comm=comm)
        converted = hvs.convert_model(models[comm.rank], halo)
        optimizer = hvs.DistributedOptimizer(
            torch.optim.Adam(converted.parameters(), lr=0.01),
            named_parameters=converted.named_parameters(),
            op="Sum",
            halo=halo,
        )
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = hvs.loss_share(converted(part.x, part.edge_index, part.edge_weight), part)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return losses

    losses = torch.tensor(run_loopback(num_ranks, train)).sum(dim=0)
    torch.testing.assert_close(losses, torch.tensor(expected.loss), rtol=1e-5, atol=1e-5)


def test_gradients_travel_as_one_message_behind_what_is_awaited(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> list[tuple[str, str]]:
        with CheckedCommunicator(comm) as checked:
            training = Training(checked, part, staleness=hvs.Pipelined(warmup=2))
            training.epochs(3)
            number = len(checked.submissions)
            training.epochs(1)
            step = list(checked.submissions[number:])
            training.halo.drain()
        return step

    for step in run_on_partitions(GRAPH, tmp_path, 3, body):
        kinds = [name.rpartition(".")[2] if "halo" in name else "gradient" for _, name in step]
        # forward halo rows go at once; the gradients do not wait behind halo gradients that
        # nobody waits for in this epoch
        assert kinds == ["forward", "forward", "gradient", "backward", "backward"]


def test_halo_gradients_that_are_awaited_go_before_gradients(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> list[tuple[str, str]]:
        with CheckedCommunicator(comm) as checked:
            training = Training(checked, part)
            training.epochs(2)
            number = len(checked.submissions)
            training.epochs(1)
            return list(checked.submissions[number:])

    for step in run_on_partitions(GRAPH, tmp_path, 2, body):
        kinds = [name.rpartition(".")[2] if "halo" in name else "gradient" for _, name in step]
        assert kinds == ["forward", "forward", "backward", "backward", "gradient"]


@pytest.mark.parametrize("mode", list(MODES))
def test_random_delays_change_nothing_and_leave_nothing_in_flight(
    tmp_path: Path, mode: str
) -> None:
    def body(inner: LoopbackCommunicator, part: hvs.Partition, seed: int | None) -> Any:
        comm: hvs.Communicator = inner
        if seed is not None:
            comm = DelayedCommunicator(inner, seed=seed, longest_s=0.005)
        with CheckedCommunicator(comm) as checked:
            training = Training(checked, part, **MODES[mode])
            losses = training.epochs(6)
            training.halo.drain()
            return losses, checked.submissions

    plain = run_on_partitions(GRAPH, tmp_path, 3, lambda comm, part: body(comm, part, None))
    late = run_on_partitions(GRAPH, tmp_path / "late", 3, lambda comm, part: body(comm, part, 7))
    assert plain == late
    assert len({submissions for _, submissions in plain}) == 1  # every rank in the same order


def test_step_that_is_skipped_and_modes_that_change_leave_right_rows(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        with CheckedCommunicator(comm) as checked:
            training = Training(checked, part, staleness=hvs.Pipelined(warmup=1))
            training.epochs(3)
            loss = training.loss()  # looked at, never differentiated
            assert bool(loss.isfinite())
            training.loss().backward()
            training.optimizer.synchronize()
            training.optimizer.zero_grad()  # this step is skipped
            training.model.eval()
            with torch.no_grad():
                exact = training.model(part.x, part.edge_index)
            again = training.model(part.x, part.edge_index)  # in evaluation, with gradients
            torch.testing.assert_close(again, exact)
            again.sum().backward()
            training.optimizer.synchronize()
            training.optimizer.zero_grad()
            training.model.train()
            losses = training.epochs(3)
            assert bool(torch.tensor(losses).isfinite().all())
            training.halo.drain()

    run_on_partitions(GRAPH, tmp_path, 3, body)


def test_exception_in_forward_on_one_rank_ends_all_with_that_rank_named(tmp_path: Path) -> None:
    ended: dict[int, BaseException] = {}

    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        training = Training(comm, part, staleness=hvs.Pipelined(warmup=1))
        training.epochs(3)
        try:
            if comm.rank == 1:
                raise KeyError("a user's mistake")
            training.epochs(2)
        except (KeyError, hvs.CommunicationError) as error:
            ended[comm.rank] = error
            raise

    with pytest.raises(KeyError, match="a user's mistake"):
        run_on_partitions(GRAPH, tmp_path, 3, body)
    for rank in (0, 2):
        assert isinstance(ended[rank], hvs.CommunicationError)
        assert "rank 1 raised KeyError" in str(ended[rank])


def test_report_counts_both_kinds_of_traffic(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        training = Training(comm, part)
        training.epochs(3)
        telemetry = training.optimizer.telemetry()
        traffic = training.halo.traffic.total("forward", "backward")
        assert telemetry.beside["halo_epochs"] == 3
        assert telemetry.beside["halo_bytes_sent"] == traffic.bytes_sent > 0
        assert telemetry.num_steps == 3 and len(telemetry.groups) == 1
        assert f"halo_bytes_sent: {traffic.bytes_sent:,.0f}" in str(telemetry)
        assert telemetry.scalars()["sylvie/halo_epochs"] == 3
        assert telemetry.as_dict()["beside"]["halo_epochs"] == 3

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_times_of_exchanges_are_kept_by_direction(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        training = Training(comm, part)
        training.epochs(2)
        for direction in ("forward", "backward"):
            times = training.halo.traffic.times(direction)
            assert min(times.encoding_s, times.waiting_s, times.decoding_s) > 0
        assert training.halo.traffic.times("evaluation").encoding_s == 0
        training.model.eval()
        with torch.no_grad():
            training.model(part.x, part.edge_index)
        assert training.halo.traffic.times("evaluation").encoding_s > 0

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_epoch_report_says_what_was_old(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        training = Training(comm, part, staleness=hvs.Pipelined(warmup=1))
        assert training.halo.last_epoch is None
        for epoch in range(2):
            training.epochs(1)
            report = training.halo.last_epoch
            assert report is not None and report.epoch == epoch
            names = ("convs.1.forward", "convs.2.forward", "convs.2.backward", "convs.1.backward")
            assert report.stale == (names if epoch == 1 else ())
            assert report.traffic.bytes_sent < report.traffic.bytes_full_precision
        training.halo.drain()

    run_on_partitions(GRAPH, tmp_path, 2, body)


def test_bad_arguments_raise(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> None:
        halo = hvs.HaloExchange(part, comm=comm)
        optimizer = torch.optim.SGD([torch.ones(3, requires_grad=True)], lr=0.1)
        with pytest.raises(ValueError, match=r"expected op=hvd.Sum with 'halo', got Average"):
            hvs.DistributedOptimizer(optimizer, halo=halo)
        with pytest.raises(TypeError, match="expected a HaloExchange or None for 'halo', got int"):
            hvs.DistributedOptimizer(optimizer, op="Sum", halo=3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="expected no 'process_set' with 'halo'"):
            hvs.DistributedOptimizer(optimizer, op="Sum", halo=halo, process_set=object())
        with pytest.raises(ValueError, match="expected no 'uneven_batches' with 'halo'"):
            hvs.DistributedOptimizer(optimizer, op="Sum", halo=halo, uneven_batches=True)
        scaler = torch.amp.GradScaler("cpu")
        hvs.DistributedOptimizer(optimizer, op="Sum", halo=halo, scaler=scaler)  # synchronous
        old = hvs.HaloExchange(part, staleness=hvs.Pipelined(), comm=comm)
        with pytest.raises(ValueError, match=r"expected no 'scaler' with Pipelined\(.* bfloat16"):
            hvs.DistributedOptimizer(optimizer, op="Sum", halo=old, scaler=scaler)

    run_on_partitions(GRAPH, tmp_path, 2, body)
