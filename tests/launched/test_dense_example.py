"""The dense example does what its help says, on real ranks."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.launcher import REPOSITORY, Job, horovodrun

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytestmark = [pytest.mark.launcher, pytest.mark.timeout(120)]

EXAMPLE = "examples/dense.py"
HAS_TENSORBOARD = importlib.util.find_spec("tensorboard") is not None
MLP = "--model mlp --data synthetic --width 64 --batch-size 16"
LSTM = "--model lstm --data synthetic --width 32 --chunk 16 --batch-size 8 --lr 2.0"


def train(tmp_path: Path, num_ranks: int, options: str) -> tuple[dict[str, Any], Job]:
    json_file = tmp_path / "run.json"
    job = horovodrun(num_ranks, EXAMPLE, *options.split(), "--json", json_file, timeout_s=100)
    assert job.returncode == 0, job.output
    figures: dict[str, Any] = json.loads(json_file.read_text())
    return figures, job


@pytest.mark.parametrize(
    ("num_ranks", "options", "dense_fraction"),
    [
        (1, f"{MLP} --compression topk", 0),
        (2, f"{MLP} --compression none", 1),
        (2, f"{MLP} --compression fp16 --clip-norm 5", 0.5),
        (2, f"{MLP} --compression bf16 --backward-passes 2", 0.5),
        (3, f"{MLP} --compression topk --density 0.05 --warmup-steps 20", 0.6),
        (2, "--model resnet20 --data synthetic --width 8 --batch-size 50 --lr 0.1", 1),
    ],
)
def test_dense_on_images_learns_and_reports(
    tmp_path: Path, num_ranks: int, options: str, dense_fraction: float
) -> None:
    epochs = 3
    figures, job = train(tmp_path, num_ranks, f"{options} --epochs {epochs}")
    assert figures["ranks"] == num_ranks
    assert len(figures["loss"]) == len(figures["accuracy"]) == epochs
    assert figures["loss"][-1] < 0.8 * figures["loss"][0]
    assert 0.6 < figures["accuracy"][-1] <= 1  # chance is 0.1
    assert figures["step_s"] > 0
    assert len(re.findall(r"epoch +\d/3  loss .* test accuracy +\d", job.output)) == epochs
    if figures["model"] == "mlp":
        num_elements = 64 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10
        ring_bytes = 2 * (num_ranks - 1) / num_ranks * 4 * num_elements
        sent = figures["bytes_sent_per_step"]
        assert sent <= 1.1 * dense_fraction * ring_bytes
        assert dense_fraction > 0.5 or sent == 0 or sent > 0.9 * dense_fraction * ring_bytes


def test_dense_on_text_with_every_option_learns_and_reports(tmp_path: Path) -> None:
    options = f"{LSTM} --epochs 3 --compression topk --density 0.1 --min-elements 512 --seed 3 "
    options += "--momentum-mode dgc --momentum 0.8 --clip-norm 2.0 --warmup-steps 8 --value-dtype "
    options += "float32 --weight-decay 0.0001 --backward-passes 2 --telemetry-every 8 "
    options += f"--report {tmp_path / 'report'}"
    figures, job = train(tmp_path, 2, options)
    assert len(figures["perplexity"]) == 3
    assert 2 < figures["perplexity"][-1] < 15  # of the source: below 3; chance is 26
    assert "accuracy" not in figures
    assert "test perplexity" in job.output
    assert "lstm.weight_hh_l0: residual / gradient" in job.output
    given = dict(re.findall(r"--([a-z-]+) (\S+)", options))
    for name, text in given.items():
        assert str(figures[name.replace("-", "_")]) == text, name
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert [each["loss"] for each in report["epochs"]] == figures["loss"]
    assert [each["scores"]["perplexity"] for each in report["epochs"]] == figures["perplexity"]
    sent = [each["gradients"]["bytes_sent_per_step"] for each in report["epochs"]]
    assert sent[0] > sent[-1]  # the density comes down
    assert sum(sent) / 3 == pytest.approx(figures["bytes_sent_per_step"])
    assert "lstm.weight_hh_l0" in (tmp_path / "report" / "report.html").read_text()


def test_dense_with_equal_seeds_repeats_itself(tmp_path: Path) -> None:
    options = f"{MLP} --epochs 2 --compression topk --density 0.05 --seed"
    first, again, other = (train(tmp_path, 2, f"{options} {seed}")[0] for seed in (4, 4, 5))
    assert first["loss"] == again["loss"]
    assert first["accuracy"] == again["accuracy"]
    assert first["loss"] != other["loss"]


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ("--density 0.1", 2, "--density: only for --compression topk or lags"),
        ("--min-density 0.1", 2, "--min-density: only for --compression lags"),
        ("--compression lags --min-density 0.1", 2, "--min-density: expected at most 0.01"),
        ("--momentum-mode dgc", 2, "--momentum-mode: only for --compression topk or lags"),
        ("--compression topk --density 2", 2, "--density: expected a number above 0 and at most 1"),
        ("--compression topk --momentum-mode dgc --momentum 0", 2, "needs a --momentum above 0"),
        ("--epochs 0", 2, "--epochs: expected at least 1, got 0"),
        ("--lr nan", 2, "--lr: expected a number above 0, got nan"),
        ("--json {folder}/nowhere/run.json", 2, "--json .*: its directory does not exist"),
        ("--report {folder}/file", 2, "--report .*file: it is a file; name a directory"),
        ("--data synthetic --report {folder}/file/below", 1, "OSError: RunReport: .*'directory'"),
        ("--data mnist:{folder}/absent.npz", 1, "FileNotFoundError: .*absent.npz"),
        ("--data text:{folder}", 1, "ValueError: read_dataset: expected digits, mnist:FILE.npz"),
        ("--data synthetic --batch-size 4000", 1, "ValueError: train: .*Lower --batch-size"),
    ],
)
def test_dense_refuses_options_before_any_rank_waits(
    tmp_path: Path, options: str, code: int, text: str
) -> None:
    (tmp_path / "file").touch()
    done = start(options.format(folder=tmp_path))
    assert done.returncode == code
    last_line = done.stderr.strip().splitlines()[-1]
    assert re.search(text, last_line), done.stderr


def start(options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPOSITORY / EXAMPLE), *options.split()]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.skipif(HAS_TENSORBOARD, reason="tensorboard is installed")
def test_dense_without_tensorboard_says_how_to_get_it(tmp_path: Path) -> None:
    done = start(f"--tensorboard {tmp_path / 'curves'}")
    assert done.returncode == 2
    assert "Run: pip install tensorboard" in done.stderr
    assert not (tmp_path / "curves").exists()


@pytest.mark.skipif(not HAS_TENSORBOARD, reason="needs tensorboard")
def test_dense_with_tensorboard_writes_curves(tmp_path: Path) -> None:
    done = start(f"{MLP} --epochs 1 --tensorboard {tmp_path / 'curves'}")
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "curves").glob("events.out.tfevents.*"))
