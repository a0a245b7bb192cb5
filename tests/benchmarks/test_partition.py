"""The benchmark of partitioning runs the real command, and reports what its report says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="needs the extra [examples]")
pytest.importorskip("pymetis", reason="needs the extra [gnn]")

from partition import PartitionJob, main, table, write_graph

from horovod_sylvie.partition.graph_readers import read_graph


def results_in(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())["jobs"]


def test_every_graph_is_cut_by_every_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, picture = tmp_path / "partition.json", tmp_path / "partition.png"
    arguments = ["--json", str(file), "--sizes", "400x6", "--parts", "2", "--features", "5"]
    main([*arguments, "--plot", str(picture)])
    results = results_in(file)
    assert list(results) == ["400x6|2|metis", "400x6|2|random"]
    metis, random = results.values()
    assert metis["num_nodes"] == random["num_nodes"] == 400
    assert 0 < metis["cut_share"] < random["cut_share"] < 1
    assert 0 < metis["halo_per_inner"] < random["halo_per_inner"]
    assert metis["seconds"] > 0 < metis["peak_bytes"]
    assert capsys.readouterr().out.strip().endswith(table(results))
    assert picture.stat().st_size > 10_000
    before = file.read_text()
    main(arguments)
    assert file.read_text() == before, "what is there is not run again"


def test_pieces_are_trained_on(tmp_path: Path) -> None:
    program = tmp_path / "launcher.py"
    program.write_text(  # stands for horovodrun and the ranks
        "import json, sys\n"
        "words = sys.argv[2:]\n"
        "assert words[1].endswith('full_graph.py') and sys.argv[1] == '2', words\n"
        "assert words[words.index('--epochs') + 1] == '4'\n"
        "figures = {'epoch_s': [9.0, 1.0, 3.0, 2.0], 'bytes_sent_per_epoch': 7.0}\n"
        "open(words[words.index('--json') + 1], 'w').write(json.dumps(figures))\n"
    )
    file = tmp_path / "partition.json"
    arguments = ["--json", str(file), "--sizes", "60x4", "--parts", "2", "--methods", "random"]
    main([*arguments, "--epochs", "4", "--launcher", f"{sys.executable} {program} {{ranks}}"])
    (figures,) = results_in(file).values()
    assert (figures["epoch_s"], figures["bytes_sent_per_epoch"]) == (2.0, 7.0)


def test_failed_job_is_named_with_its_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--json", str(tmp_path / "partition.json"), "--sizes", "60x4"]
    with pytest.raises(SystemExit, match=r"failed: 60x4\|0\|metis. The same command"):
        main([*arguments, "--parts", "0", "--methods", "metis"])
    assert "60x4|0|metis: ended with 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--sizes", "many"], "expected NODESxDEGREE, such as 20000x15, got 'many'"),
        (["--epochs", "1"], "expected 0, or at least 2"),
    ],
)
def test_wrong_arguments_end_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    with pytest.raises(SystemExit):
        main(["--json", str(tmp_path / "partition.json"), *words])
    assert text in capsys.readouterr().err


def test_graph_in_the_file_is_the_one_that_was_drawn(tmp_path: Path) -> None:
    write_graph(PartitionJob(300, 6, 2, "metis"), 3, tmp_path / "graph.npz")
    written = read_graph(tmp_path / "graph.npz")
    drawn = read_graph("synthetic:nodes=300,degree=6,features=3")
    assert (written.x == drawn.x).all()
    assert (written.edge_index == drawn.edge_index).all()
    assert written.mirror == drawn.mirror
