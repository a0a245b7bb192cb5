"""The driver of the accuracy benchmark trains what is missing, and keeps what it needs."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="needs the extra [examples]")
pytest.importorskip("tqdm", reason="needs the extra [examples]")

from accuracy import Batch, main, missing_in, wanted_batches
from accuracy_rank import with_budget
from accuracy_recipes import DEFAULT_GRAPHS, MODELS, MODES, NAMES, Run, Setting

from horovod_sylvie.partition.partitioner import partition_graph

# Stands for horovodrun and the ranks: notes each training, and writes the report
LAUNCHER = """\
import json, sys
from pathlib import Path
folder, ranks, _, program, *options = sys.argv[1:]
assert Path(program).name == "accuracy_rank.py" and Path(program).exists()
report = Path(options[options.index("--report") + 1])
names = ["convs.1.forward", "convs.1.backward"]
for mode, words in json.loads(options[-1]).items():
    with open(Path(folder, "calls"), "a") as calls:
        model = words.split()[words.split().index("--model") + 1]
        calls.write(f"{model} {ranks} {mode}\\n")
    if Path(folder, "broken").exists() and mode != "full":
        sys.exit("the ranks fell over")
    figures = {
        "metric": "accuracy", "test_accuracy": 0.9, "val_accuracy": 0.8, "wall_s": 3.0,
        "bytes_sent_per_epoch": 100.0, "bytes_full_precision_per_epoch": 3200.0,
        "loss": [1.23456, 1.1, 1.0, 0.9, 0.8, 0.7, None], "epoch_s": [0.5, 0.1, 0.1],
        "bits": [None, 1.0, 2.0], "exchanges": names,
        "stale": [[], names, names, names[:1], [], [], []],
    }
    with report.open("a") as lines:
        lines.write(json.dumps({"mode": mode, "figures": figures}) + "\\n")
"""


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    partition_graph("synthetic:nodes=40,degree=3", tmp_path / "parts", 2)

    def copy(graph: Path, parts: Path, num_ranks: int) -> None:
        assert graph == tmp_path / "graphs" / graph.stem / graph.name
        shutil.copytree(tmp_path / "parts", parts)

    monkeypatch.setattr("horovod_sylvie.partition_graph", copy)
    program = tmp_path / "launcher.py"
    program.write_text(LAUNCHER)
    launcher = f"{sys.executable} {program} {tmp_path} {{ranks}}"
    results = str(tmp_path / "sub" / "out.json")
    return [str(tmp_path / "graphs"), "--results", results, "--launcher", launcher]


def calls_in(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def results_in(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "sub" / "out.json").read_text())["jobs"]


def test_every_mode_has_a_name() -> None:
    assert list(MODES) == list(NAMES)


def test_runs_of_a_kind_that_is_not_named_are_all_wanted() -> None:
    batches = wanted_batches([], [2, 4], 3)
    runs = [run for batch in batches for run in batch.runs]
    assert len(runs) == len(set(runs)) == 2 * len(DEFAULT_GRAPHS) * len(MODELS) * 3 * len(MODES)
    assert all(Run.from_key(run.key) == run for run in runs)
    assert wanted_batches(["cora", "gat", "degree", "full"], [2], 1) == [
        Batch(Setting("cora", "gat", 2), 0, ("full", "degree"))
    ]


def test_budget_comes_behind_one_bit_of_the_same_seed() -> None:
    batch = Batch(Setting("cora", "gat", 2), 1, ("full", "budget"))
    assert missing_in(batch, {}).modes == ("one-bit", "full", "budget")
    both = Batch(Setting("cora", "gat", 2), 1, ("one-bit", "budget"))
    known = Run(both.setting, "one-bit", 1).key
    assert missing_in(both, {known: {}}).modes == ("one-bit", "budget")
    assert missing_in(both, {run.key: {} for run in both.runs}).modes == ()
    figures = {"bytes_sent_per_epoch": 100.25}
    assert with_budget(["--codec", "1"], figures) == ["--codec", "1", "--budget", "201"]


def test_runs_in_the_file_are_not_run_again(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--ranks", "2", "--seeds", "1", "--only", "cora", "sage"]
    main([*arguments, *options, "full"])
    assert calls_in(tmp_path) == ["sage 2 full"]
    main([*arguments, *options, "full", "budget", "delta"])
    assert calls_in(tmp_path)[1:] == ["sage 2 one-bit", "sage 2 budget", "sage 2 delta"]
    figures = results_in(tmp_path)["cora|sage|2|budget|0"]
    assert figures["loss"] == [1.235, 0.7]
    assert figures["loss_epochs"] == [1, 6]
    assert (figures["epoch_s"], figures["bits"]) == (0.1, 1.5)
    assert figures["stale_share"] == round(5 / 14, 4)
    assert "| cora | sage | 2 | changes, one bit, centroid | 1 |" in capsys.readouterr().out


def test_each_seed_is_trained_with_its_own(tmp_path: Path, arguments: list[str]) -> None:
    main([*arguments, "--ranks", "2", "--seeds", "3", "--only", "cora", "sage", "full"])
    for seed in range(3):
        words = results_in(tmp_path)[f"cora|sage|2|full|{seed}"]["options"].split()
        assert words[words.index("--seed") + 1] == str(seed)


def test_every_recipe_is_given_more_to_a_file_of_its_own(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--ranks", "2", "--seeds", "1", "--only", "cora", "sage", "full"]
    main([*arguments, *options, "--more=--dropout 0"])
    assert results_in(tmp_path)["cora|sage|2|full|0"]["options"].endswith(
        "full --seed 0 --dropout 0"
    )
    with pytest.raises(SystemExit):
        main([*arguments, *options])
    assert "was made with other options" in capsys.readouterr().err


def test_failed_training_is_named_with_its_output(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--ranks", "2", "--seeds", "1", "--only", "cora", "sage", "full", "delta"]
    (tmp_path / "broken").touch()
    with pytest.raises(SystemExit, match=r"failed: cora\|sage\|2\|delta\|0. The same command"):
        main([*arguments, *options])
    assert "the job ended with 1\nthe ranks fell over" in capsys.readouterr().out
    assert list(results_in(tmp_path)) == ["cora|sage|2|full|0"], "what was done before is kept"


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"runs": {}}, "another program's, or an older one's; name another file"),
        (
            {"jobs": {"cora|sage|2|full|0": {"options": "--epochs 3"}}},
            r"cora.sage.2.full.0 was made with other options; name another file",
        ),
    ],
)
def test_results_of_other_recipes_are_refused(
    tmp_path: Path,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    document: dict[str, Any],
    text: str,
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "out.json").write_text(json.dumps(document))
    with pytest.raises(SystemExit):
        main(arguments)
    error = " ".join(capsys.readouterr().err.split())
    assert text.replace("cora.sage.2.full.0", "cora|sage|2|full|0") in error
