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
        (2, "--model sage --codec 1 --hidden 256 --norm layer", 23),  # 8 bits for 5 products
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


def test_full_graph_pipelined_is_stale_except_where_it_waits(tmp_path: Path) -> None:
    options = "--model jknet --layers 3 --hidden 16 --staleness pipelined --sync-every 3 --warmup 2"
    figures = train(tmp_path, 2, f"{options} --epochs 8 --norm layer")
    exchanges = [
        f"convs.{layer}.{way}"
        for way, layer in zip(["forward"] * 2 + ["backward"] * 2, [1, 2, 2, 1], strict=True)
    ]
    assert figures["exchanges"] == exchanges
    waits = [True, True, True, False, False, True, False, False]
    assert figures["stale"] == [[] if each else exchanges for each in waits]
    assert figures["drift"] == [{}] * 8
    assert figures["loss"][-1] < figures["loss"][0]


def test_full_graph_bounded_is_stale_where_drift_is_small(tmp_path: Path) -> None:
    limit = 0.4
    options = f"--model gat --hidden 32 --staleness bounded --max-drift {limit} --warmup 3"
    options += " --layers 3 --dropout 0"  # a mask that is new in each epoch is a large change
    report = f"--report {tmp_path / 'report'}"
    figures = train(tmp_path, 2, f"{options} --epochs 15 --norm layer {report}")
    for epoch, (stale, drift) in enumerate(zip(figures["stale"], figures["drift"], strict=True)):
        small = [name for name, value in drift.items() if value <= limit]
        assert stale == (small if epoch >= 3 else [])
        assert set(drift) == (set(figures["exchanges"]) if epoch >= 1 else set())
    assert 0 < sum(map(len, figures["stale"])) < 15 * len(figures["exchanges"])
    told = json.loads((tmp_path / "report" / "report.json").read_text())["epochs"]
    assert [each["loss"] for each in told] == figures["loss"]
    assert [each["halo"]["stale"] for each in told] == figures["stale"]
    assert [each["halo"]["drift"] for each in told] == figures["drift"]
    assert [each["epoch"] for each in told if "accuracy" in each] == [10, 15]
    sent = [
        each["halo"]["forward_bytes_sent"] + each["halo"]["backward_bytes_sent"] for each in told
    ]
    assert sent == figures["bytes_sent"]
    assert "convs.1.backward" in (tmp_path / "report" / "report.html").read_text()


def test_full_graph_tries_both_and_keeps_one(tmp_path: Path) -> None:
    options = "--model gat --hidden 32 --layers 3 --epochs 12 --codec auto --norm layer"
    bits = train(tmp_path, 2, options)["bits"]
    assert all(round(each) == 32 for each in bits[:5])  # full precision first
    assert all(each < 4 for each in bits[5:9])
    assert len({round(each) for each in bits[9:]}) == 1


@pytest.mark.parametrize(
    ("options", "least", "most"),
    [
        ("--bits-policy degree --base-bit 2 --adapt-base --compression lags", 4, 6.5),
        ("--bits-policy budget --budget 60000 --no-overlap --no-smaller-side", 2, 6),
    ],
)
def test_full_graph_sends_the_bits_of_the_policy(
    tmp_path: Path, options: str, least: float, most: float
) -> None:
    figures = train(tmp_path, 2, f"--model gcn --layers 3 --epochs 4 --norm layer {options}")
    first, *later = figures["bits"]
    assert first < 2  # one bit until there is a plan, and headers
    assert all(least < bits < most for bits in later)
    sent = figures["bytes_sent"]
    assert figures["bytes_sent_per_epoch"] == sum(sent) / 4
    if figures["budget"]:
        assert all(0.9 * figures["budget"] < each < 1.02 * figures["budget"] for each in sent[1:])


def test_full_graph_that_is_resumed_equals_one_never_stopped(tmp_path: Path) -> None:
    options = "--model sage --layers 3 --norm batch --staleness pipelined --warmup 1 --delta "
    options += "--code centroid --refresh-every 3 --compression topk --density 0.1"
    kept = f"{options} --checkpoint {tmp_path / 'kept'}"
    whole = train(tmp_path, 2, f"{options} --epochs 8")
    first = train(tmp_path, 2, f"{kept} --epochs 4 --checkpoint-every 3")
    assert first["loss"] == whole["loss"][:4]
    resumed = train(tmp_path, 2, f"{kept} --epochs 8 --resume")
    for figure in ("loss", "test_accuracy", "stale", "bytes_sent", "bits"):
        assert resumed[figure] == whole[figure], figure
    elsewhere = train(tmp_path, 3, f"{kept} --epochs 12 --resume")
    assert elsewhere["loss"][:8] == whole["loss"]
    assert len(elsewhere["loss"]) == 12
    assert elsewhere["loss"][-1] < whole["loss"][3]
    assert elsewhere["stale"][8] == []  # rows of another partition are not used
    assert elsewhere["stale"][9] == elsewhere["exchanges"]


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
        ("--report {folder}/file", "--report .*file: it is a file; name a directory"),
        ("--codec 2 --code centroid", "--code centroid: only for --codec 1"),
        ("--layers 0", "--layers: expected at least 1"),
        ("--model gat --hidden 30", r"--hidden \(30\) must be a multiple of --heads \(4\)"),
    ],
)
def test_full_graph_refuses_options_before_any_rank_waits(
    tmp_path: Path, options: str, text: str
) -> None:
    partition_graph(GRAPH, tmp_path / "parts", 1)
    (tmp_path / "file").touch()
    command = [sys.executable, str(REPOSITORY / "examples/full_graph.py")]
    command += ["--data", str(tmp_path / "parts"), *options.format(folder=tmp_path).split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert re.search(text, done.stderr), done.stderr
