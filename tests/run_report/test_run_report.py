"""Reports of small trainings: their figures are those that the training had."""

from __future__ import annotations

import ast
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.run_report import run_report
from tests.gradient.training import make_model, top_k, train, wrap
from tests.halo.door_training import GRAPH, Training
from tests.halo.on_partitions import run_on_partitions
from tests.test_floors import MODULES, name_of, own_imports

STEPS, EPOCHS = 3, 4


def figures_in(directory: Path) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((directory / "report.json").read_text())
    return figures


def train_gradients(comm: LoopbackCommunicator, directory: Path) -> dict[str, Any]:
    """Train data-parallel with a report, and return this rank's telemetry."""
    report = hvs.RunReport(directory, comm=comm, title="gradients", options={"lr": 0.1})
    model = make_model()
    optimizer = wrap(model, comm, compression=top_k(), telemetry_every=2)
    for epoch in range(EPOCHS):
        train(model, optimizer, comm, range(STEPS * epoch, STEPS * (epoch + 1)))
        report.add_epoch(
            loss=torch.tensor(1.0 / (1 + epoch)),
            accuracy=0.25 * epoch,
            scores={"perplexity": math.exp(-epoch)},
            seconds=100.0 + comm.rank,
            steps=STEPS,
            optimizer=optimizer,
        )
    assert report.write() == directory / "report.html"
    telemetry: dict[str, Any] = optimizer.telemetry().as_dict()
    return telemetry


@pytest.mark.parametrize("size", [2, 3])
def test_report_of_gradients_has_the_figures_of_the_training(tmp_path: Path, size: int) -> None:
    telemetry = hvs.run_loopback(size, lambda comm: train_gradients(comm, tmp_path / "report"))
    figures = figures_in(tmp_path / "report")
    assert (figures["ranks"], figures["title"], figures["options"]) == (
        size,
        "gradients",
        {"lr": "0.1"},
    )
    assert [each["epoch"] for each in figures["epochs"]] == [1, 2, 3, 4]
    assert [each["loss"] for each in figures["epochs"]] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    assert [each["accuracy"]["accuracy"] for each in figures["epochs"]] == [0, 0.25, 0.5, 0.75]
    groups = {each["name"]: each for each in telemetry[0]["groups"]}
    for group in figures["gradient_groups"]:
        told = groups.pop(group["name"])
        assert group["bytes_sent_per_step"] == told["bytes_sent"]
        ring = 2 * (size - 1) / size * 4
        assert group["bytes_dense_per_step"] == pytest.approx(ring * told["num_elements"])
    assert groups == {}
    spent = dict.fromkeys(("selection_s", "waiting_s", "decoding_s"), 0.0)
    for each in figures["epochs"]:
        gradients, seconds = each["gradients"], each["seconds"]
        assert gradients["steps_seen"] == STEPS
        assert gradients["bytes_sent_per_step"] == pytest.approx(
            telemetry[0]["bytes_sent_per_step"]
        )
        assert gradients["density"] == telemetry[0]["selected_fraction"]
        assert set(gradients["deltas"]) == {"0.weight", "3.weight", "5.weight"}
        parts = [seconds[name] for name in seconds if name not in ("epoch_s", "longest_epoch_s")]
        assert sum(parts) == pytest.approx(seconds["epoch_s"]) == 100 + (size - 1) / 2
        assert seconds["longest_epoch_s"] == 100 + size - 1
        spent["selection_s"] += seconds["selecting_s"]
        spent["waiting_s"] += seconds["waiting_for_gradients_s"]
        spent["decoding_s"] += seconds["decoding_s"]
    for name, value in spent.items():
        mean = sum(each[name] for each in telemetry) / size
        assert value == pytest.approx(EPOCHS * STEPS * mean), name
    assert [each["epoch_s"] for each in figures["time_by_rank"]] == [
        100.0 + rank for rank in range(size)
    ]
    assert figures["halo_layers"] == []


def test_report_of_a_graph_has_the_figures_of_the_training(tmp_path: Path) -> None:
    directory = tmp_path / "report"

    def body(comm: LoopbackCommunicator, part: hvs.Partition) -> Any:
        report = hvs.RunReport(directory, comm=comm)
        training = Training(comm, part, staleness=hvs.BoundedStaleness(max_drift=0.4, warmup=1))
        newest = []
        for _ in range(EPOCHS):
            training.epochs(1)
            report.add_epoch(halo=training.halo, optimizer=training.optimizer, seconds=50.0)
            newest.append(training.halo.last_epoch)
        training.halo.drain()
        report.write()
        return newest, training.halo.traffic

    (reports, ledger), (other_reports, other_ledger) = run_on_partitions(GRAPH, tmp_path, 2, body)
    figures = figures_in(directory)
    assert figures["max_drift"] == 0.4
    for each, own, other in zip(figures["epochs"], reports, other_reports, strict=True):
        halo = each["halo"]
        assert halo["stale"] == list(own.stale)
        assert halo["exchanges"] == [f"{one.layer}.{one.direction}" for one in own.layers]
        traffic = own.traffic + other.traffic
        sent = halo["forward_bytes_sent"] + halo["backward_bytes_sent"]
        full = halo["forward_bytes_full_precision"] + halo["backward_bytes_full_precision"]
        assert (sent, full) == (traffic.bytes_sent, traffic.bytes_full_precision)
        assert halo["forward_bits"] == pytest.approx(
            32 * halo["forward_bytes_sent"] / halo["forward_bytes_full_precision"]
        )
        drift = {f"{one.layer}.{one.direction}": one.drift for one in own.layers if one.drift >= 0}
        assert halo["drift"] == drift
        parts = ("encoding_s", "waiting_for_rows_s", "decoding_s", "computing_s")
        assert all(each["seconds"][name] > 0 for name in parts)
        assert "gradients" in each
    assert any(each["halo"]["stale"] for each in figures["epochs"])
    for layer in figures["halo_layers"]:
        key = (layer["layer"], layer["direction"])
        total = ledger.entries[key] + other_ledger.entries[key]
        assert layer["bytes_sent"] == total.bytes_sent
        assert layer["epochs"] == EPOCHS
    encoding = sum(each["seconds"]["encoding_s"] for each in figures["epochs"])
    times = [each.times("forward", "backward").encoding_s for each in (ledger, other_ledger)]
    assert encoding == pytest.approx(sum(times) / 2)


def test_one_rank_has_a_report_without_bytes(tmp_path: Path) -> None:
    hvs.run_loopback(1, lambda comm: train_gradients(comm, tmp_path))
    figures = figures_in(tmp_path)
    assert figures["ranks"] == 1
    assert figures["gradient_groups"] == []
    assert "gradients" not in figures["epochs"][0]
    assert figures["epochs"][0]["seconds"]["computing_s"] == 100.0
    assert "One rank exchanges nothing" in (tmp_path / "report.html").read_text()


def test_losses_that_are_no_numbers_are_null_and_those_not_told_are_absent(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        report = hvs.RunReport(tmp_path, comm=comm)
        for loss in (2.0, math.nan, math.inf, None):
            report.add_epoch(loss=loss)
        report.write()

    hvs.run_loopback(2, body)
    assert [each.get("loss", "absent") for each in figures_in(tmp_path)["epochs"]] == [
        *[2.0, None, None, "absent"]
    ]


def test_report_may_be_written_again_and_without_epochs(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        report = hvs.RunReport(tmp_path, comm=comm)
        report.write()
        report.add_epoch(loss=1.0, epoch=41)  # behind a checkpoint
        report.write()
        report.add_epoch(loss=0.5)
        report.write()

    hvs.run_loopback(2, body)
    assert [each["epoch"] for each in figures_in(tmp_path)["epochs"]] == [41, 42]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]


def test_directory_that_is_unfit_is_refused_on_all_ranks_together(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    def body(comm: LoopbackCommunicator) -> None:
        expected: type[Exception] = NotADirectoryError if comm.rank == 0 else hvs.PeerError
        with pytest.raises(expected, match=r"expected a directory for 'directory', got the file"):
            hvs.RunReport(tmp_path / "file", comm=comm)
        with pytest.raises((TypeError, hvs.PeerError), match="expected a path for 'directory'"):
            hvs.RunReport(tmp_path if comm.rank == 0 else 3, comm=comm)  # type: ignore[arg-type]

    hvs.run_loopback(3, body)


def test_report_that_cannot_be_written_fails_on_all_ranks_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(run_report, "write_files", fail)

    def body(comm: LoopbackCommunicator) -> None:
        report = hvs.RunReport(tmp_path, comm=comm)
        with pytest.raises((OSError, hvs.PeerError), match="no space left"):
            report.write()

    hvs.run_loopback(2, body)
    assert list(tmp_path.iterdir()) == []


def test_epoch_that_is_refused_is_not_noted(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        report = hvs.RunReport(tmp_path, comm=comm)
        with pytest.raises(ValueError, match="'accuracy', got 97"):
            report.add_epoch(loss=1.0, accuracy=97)
        with pytest.raises(TypeError, match=r"expected an optimizer of hvs.DistributedOptimizer"):
            report.add_epoch(optimizer=torch.optim.SGD([torch.zeros(1)], lr=1))
        report.write()

    hvs.run_loopback(1, body)
    assert figures_in(tmp_path)["epochs"] == []


def test_report_imports_no_optional_package() -> None:
    program = "import sys, horovod_sylvie; horovod_sylvie.RunReport; "
    program += "print({'horovod', 'torch_geometric', 'matplotlib', 'scipy'} & set(sys.modules))"
    outcome = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert outcome.stdout.strip() == "set()"


def test_report_looks_at_both_halves_through_their_reports_only() -> None:
    allowed = {"gradient.telemetry", "halo.epoch_report", "halo.traffic"}
    modules = [path for path in MODULES if name_of(path).startswith("run_report")]
    assert len(modules) > 10
    for path in modules:
        outside = {name for name in own_imports(path) if not name.startswith("run_report")}
        assert {name for name in outside if not name.startswith("comm.")} <= allowed
        private = [
            node.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not node.attr.endswith("__")
            and getattr(node.value, "id", "") != "self"
        ]
        assert private == [], name_of(path)
