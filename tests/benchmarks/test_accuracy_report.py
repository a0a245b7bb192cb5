"""The tables of the accuracy benchmark say what its figures say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="needs the extra [examples]")

from accuracy_report import difference, overview, plot, spread, table, verdict


def figures(accuracy: float, sent: float, stale_share: float = 0.0) -> dict[str, Any]:
    return {
        "test_accuracy": accuracy,
        "bytes_sent_per_epoch": sent,
        "bytes_full_precision_per_epoch": 3200.0,
        "bits": sent / 100,
        "stale_share": stale_share,
        "epoch_s": 0.25,
        "loss": [2.0, None],
        "loss_epochs": [1, 6],
    }


RESULTS = {
    "cora|sage|2|full|0": figures(0.90, 3200.0),
    "cora|sage|2|full|1": figures(0.92, 3200.0),
    "cora|sage|2|pipelined|0": figures(0.89, 100.0, 0.5),
    "cora|sage|2|pipelined|1": figures(0.92, 100.0, 0.7),
    "cora|sage|2|pipelined|2": figures(0.10, 100.0, 0.6),
    "cora|gat|4|full|0": figures(0.80, 3200.0),
    "cora|gat|4|pipelined|0": figures(0.81, 100.0),
    "cora|gat|4|degree|0": figures(0.80, 400.0),
}


def test_mean_is_shown_with_its_spread_and_error() -> None:
    assert spread([90.0, 92.0]) == "91.00 ± 1.41"
    assert spread([90.0]) == "90.00"
    assert difference([-1.0, 0.0]) == "-0.50 ± 0.50"
    assert difference([0.25]) == "+0.25"
    assert difference([]) == "-"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.01, -0.01], "yes"),
        ([0.5, -0.7, 0.1], "yes?"),
        ([-0.9, 0.1], "no?"),
        ([-0.9, -0.91, -0.89], "no"),
        ([0.0], "yes?"),
        ([], "-"),
    ],
)
def test_verdict_says_whether_noise_could_have_made_it(values: list[float], expected: str) -> None:
    assert verdict(values) == expected


def test_table_compares_seeds_that_both_have() -> None:
    rows = table(RESULTS).splitlines()[2:]
    assert rows == [
        "| cora | sage | 2 | full precision | 2 | 91.00 ± 1.41 |  |  | 1/1.0 | 32.00 | 0 | 0.250 |",
        "| cora | sage | 2 | one bit, pipelined | 3 | 63.67 ± 46.50 | -0.50 ± 0.50 | no? | 1/32.0 "
        "| 1.00 | 60 | 0.250 |",
        "| cora | gat | 4 | full precision | 1 | 80.00 |  |  | 1/1.0 | 32.00 | 0 | 0.250 |",
        "| cora | gat | 4 | one bit, pipelined | 1 | 81.00 | +1.00 | yes? | 1/32.0 | 1.00 | 0 | "
        "0.250 |",
        "| cora | gat | 4 | bits by degree | 1 | 80.00 | +0.00 | yes? | 1/8.0 | 4.00 | 0 | 0.250 |",
    ]


def test_overview_names_the_worst_setting_of_each_mode() -> None:
    rows = overview(RESULTS).splitlines()[2:]
    assert rows == [
        "| one bit, pipelined | 2 | 1 | +0.25 | -0.50 | cora, sage, 2 ranks |",
        "| bits by degree | 1 | 1 | +0.00 | +0.00 | cora, gat, 4 ranks |",
    ]


def test_curves_are_drawn_also_where_a_loss_went_astray(tmp_path: Path) -> None:
    plot(RESULTS, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000
