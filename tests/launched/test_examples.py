"""The examples do what their help says, on real ranks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from horovod_sylvie.partition.partitioner import partition_graph
from tests.launcher import REPOSITORY, horovodrun

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytestmark = [pytest.mark.launcher, pytest.mark.timeout(120)]

GRAPH = "synthetic:nodes=900,degree=10,classes=5,features=24,mixing=0.2,noise=2,seed=3"


def train(tmp_path: Path, num_ranks: int, options: str, data: object = GRAPH) -> dict[str, Any]:
    json_file = tmp_path / "run.json"
    job = horovodrun(
        num_ranks,
        "examples/full_graph.py",
        *["--data", data, "--json", json_file, *options.split()],
        timeout_s=100,
    )
    assert job.returncode == 0, job.output
    assert "test accuracy" in job.output
    figures: dict[str, Any] = json.loads(json_file.read_text())
    return figures


@pytest.mark.parametrize(
    ("num_ranks", "options", "ratio"),
    [
        (1, "--model gcn --codec full", None),
        (2, "--model sage --codec 1 --hidden 256 --norm layer", 27),
        (3, "--model gat --codec half", 1.9),
        (4, "--model gin --codec 1 --code centroid --hidden 256", 27),
    ],
)
def test_full_graph_learns_and_reports(
    tmp_path: Path, num_ranks: int, options: str, ratio: float | None
) -> None:
    epochs = 12
    figures = train(tmp_path, num_ranks, f"{options} --layers 3 --epochs {epochs} --dropout 0.1")
    assert figures["ranks"] == num_ranks
    assert len(figures["loss"]) == len(figures["epoch_s"]) == epochs
    assert figures["loss"][-1] < 0.8 * figures["loss"][0]
    assert figures["test_accuracy"] > 0.4  # chance is 0.2
    assert 0 <= figures["val_accuracy"] <= 1
    sent, full = (
        figures["bytes_sent_per_epoch"],
        figures["bytes_full_precision_per_epoch"],
    )
    if ratio is None:
        assert sent == full == 0
    else:
        assert full / sent >= ratio
    assert figures["model"] == options.split()[1]


def test_full_graph_with_equal_seeds_repeats_itself(tmp_path: Path) -> None:
    options = "--model sage --codec 1 --epochs 4 --parts-dir"
    first = train(tmp_path, 2, f"{options} {tmp_path / 'kept'}")
    again = train(tmp_path, 2, options.replace(" --parts-dir", ""), tmp_path / "kept" / "2-parts")
    assert first["loss"] == again["loss"]
    assert first["test_accuracy"] == again["test_accuracy"]


def test_full_graph_on_broken_input_says_so_on_every_rank(tmp_path: Path) -> None:
    broken = tmp_path / "graph.npz"
    broken.write_bytes(b"PK\x03\x04 no archive")
    job = horovodrun(2, "examples/full_graph.py", "--data", broken, timeout_s=60)
    assert job.returncode not in (0, None), job.output
    assert "graph.npz" in job.output


def programs_in_the_readme() -> list[tuple[str, str]]:
    """Return each diff's program before and after the change."""
    readme = (REPOSITORY / "README.md").read_text()
    programs = []
    for block in re.findall(r"```diff\n(.*?)```", readme, re.DOTALL):
        lines = block.splitlines()
        before, after = (
            "\n".join(line[1:] for line in lines if not line.startswith(left_out))
            for left_out in "+-"
        )
        programs.append((before, after))
    return programs


def test_data_parallel_program_in_the_readme_runs_before_and_after(tmp_path: Path) -> None:
    for number, text in enumerate(programs_in_the_readme()[0]):
        program = tmp_path / f"train_{number}.py"
        batches = "batches = [(torch.randn(16, 784), torch.randint(0, 10, (16,)))] * 30\n"
        report = "print('loss', torch.nn.functional.cross_entropy(model(x), y).item())\n"
        program.write_text(
            text.replace("for x, y in batches", f"{batches}for x, y in batches") + f"\n{report}"
        )
        job = horovodrun(2, str(program), timeout_s=100)
        assert job.returncode == 0, job.output
        losses = [float(found) for found in re.findall(r"loss (\S+)", job.output)]
        assert len(losses) == 2
        assert max(losses) < 1.0  # 2.3 at the start


def test_full_graph_program_in_the_readme_runs(tmp_path: Path) -> None:
    before, after = programs_in_the_readme()[1]
    compile(before, "README before", "exec")
    program = tmp_path / "train.py"
    program.write_text(
        after.replace('"parts"', repr(str(tmp_path / "parts"))).replace("range(100)", "range(20)")
    )
    partition_graph(GRAPH, tmp_path / "parts", 2)
    job = horovodrun(2, str(program), timeout_s=100)
    assert job.returncode == 0, job.output
    accuracies = [float(text) for text in re.findall(r"\]<stdout>:(0\.\d+)", job.output)]
    assert len(accuracies) == 2
    assert accuracies[0] == accuracies[1] > 0.4  # chance is 0.2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--method random", "--method: --data .* is a partition already"),
        ("--json {folder}/nowhere/run.json", "--json .*: its directory does not exist"),
        ("--codec 2 --code centroid", "--code centroid: only for --codec 1"),
        ("--layers 0", "--layers: expected at least 1"),
        ("--model gat --hidden 30", r"--hidden \(30\) must be a multiple of --heads \(4\)"),
    ],
)
def test_full_graph_refuses_options_before_any_rank_waits(
    tmp_path: Path, options: str, text: str
) -> None:
    partition_graph(GRAPH, tmp_path / "parts", 1)
    command = [sys.executable, str(REPOSITORY / "examples/full_graph.py")]
    command += ["--data", str(tmp_path / "parts"), *options.format(folder=tmp_path).split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert re.search(text, done.stderr), done.stderr
