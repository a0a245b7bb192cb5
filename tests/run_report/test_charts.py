"""Which charts there are, and what their notes say of what is not shown."""

from __future__ import annotations

from typing import Any

import pytest

from horovod_sylvie.run_report.charts import (
    Chart,
    density_charts,
    drift_charts,
    learning_charts,
)
from horovod_sylvie.run_report.cost_charts import byte_charts, staleness_charts, time_charts
from tests.run_report.documents import make_document, without
from tests.run_report.drawings import assert_inside, elements, parsed, texts

MAKERS = (
    learning_charts,
    byte_charts,
    time_charts,
    density_charts,
    staleness_charts,
    drift_charts,
)
ALL = ["loss", "accuracy", "score-0", "gradient-bytes", "halo-bytes", "time", "rank-time"]
ALL += ["density", "bits", "staleness", "drift", "delta"]


def charts_of(document: dict[str, Any]) -> dict[str, Chart]:
    charts = {chart.name: chart for make in MAKERS for chart in make(document)}
    for chart in charts.values():
        assert_inside(parsed(chart.picture))
        assert chart.title
    return charts


@pytest.mark.parametrize("num_epochs", [1, 2, 6, 130])
@pytest.mark.parametrize("num_layers", [1, 30])
def test_document_with_everything_has_every_chart(num_epochs: int, num_layers: int) -> None:
    document = make_document(num_epochs, num_layers=num_layers)
    names = [name for name in ALL if name != "drift" or num_epochs > 1]
    assert list(charts_of(document)) == names


@pytest.mark.parametrize(
    ("figures", "absent"),
    [
        (("loss",), {"loss"}),
        (("accuracy", "scores"), {"accuracy", "score-0"}),
        (("seconds",), {"time", "rank-time"}),
        (("gradients",), {"gradient-bytes", "density", "delta"}),
        (("halo",), {"halo-bytes", "bits", "staleness", "drift"}),
        (("loss", "accuracy", "scores", "seconds", "gradients", "halo"), set(ALL)),
    ],
)
def test_charts_without_figures_are_left_out(figures: tuple[str, ...], absent: set[str]) -> None:
    assert set(charts_of(without(make_document(), *figures))) == set(ALL) - absent


def test_no_epoch_has_no_chart() -> None:
    document = without(make_document(0, num_layers=0), "seconds")
    assert charts_of(document) == {}


def test_one_rank_has_no_times_by_rank() -> None:
    assert "rank-time" not in charts_of(make_document(num_ranks=1))


def test_many_layers_are_the_twenty_largest_and_the_rest() -> None:
    charts = charts_of(make_document(num_layers=25))
    names = texts(parsed(charts["gradient-bytes"].picture), "tick")
    assert names == [f"convs.{number}.weight" for number in range(24, 4, -1)] + ["5 others"]
    sizes = texts(parsed(charts["gradient-bytes"].picture), "end")
    rest = sum(100 * number for number in range(1, 6))
    assert sizes[-1] == f"{40 * rest / 1024:.1f} KiB → {rest / 1024:.2f} KiB (40.0× less)"
    assert len(texts(parsed(charts["halo-bytes"].picture), "tick")) == 21
    assert len(texts(parsed(charts["staleness"].picture), "end")) == 20
    assert "The 20 of 50 that did so most." in charts["staleness"].note
    assert len(elements(parsed(charts["drift"].picture), "path", "line")) == 6
    assert "The 6 largest of 50; the others are in the JSON file." in charts["drift"].note


def test_one_layer_more_than_the_limit_is_shown_itself() -> None:
    charts = charts_of(make_document(num_layers=21))
    assert texts(parsed(charts["gradient-bytes"].picture), "tick")[-1] == "convs.0.weight"


def test_bytes_of_halo_rows_are_per_epoch_and_others_are_told_beside() -> None:
    chart = charts_of(make_document(5))["halo-bytes"]
    assert texts(parsed(chart.picture), "end")[0] == "280 B → 10.0 B (28.0× less)"
    assert "100 B of features, fetched once and 100 B for all evaluations" in chart.note


def test_loss_that_is_no_number_is_said_to_be_none() -> None:
    document = make_document(loss=lambda epoch: None if epoch in (3, 4) else 1.0)
    chart = charts_of(document)["loss"]
    assert chart.note == "Not a number where shaded, first in epoch 3."
    assert len(elements(parsed(chart.picture), "rect", "gap")) == 1
    assert charts_of(make_document())["loss"].note == ""


def test_figure_that_was_not_measured_makes_no_gap() -> None:
    document = make_document()
    del document["epochs"][2]["loss"]
    picture = parsed(charts_of(document)["loss"].picture)
    assert len(elements(picture, "path", "line")) == 1
    assert elements(picture, "rect", "gap") == []
    assert len(elements(picture, "circle", "mark")) == 5


def test_changes_of_the_plan_are_told() -> None:
    charts = charts_of(make_document())
    assert "1 of 6 epochs ended with another plan" in charts["density"].note
    assert "Groups are those of the newest plan." in charts["gradient-bytes"].note
    document = make_document(2)
    assert "plan" not in charts_of(document)["density"].note


def test_one_group_has_one_line_of_density() -> None:
    document = make_document()
    for epoch in document["epochs"]:
        epoch["gradients"]["group_densities"] = {"a": 0.02}
    assert len(texts(parsed(charts_of(document)["density"].picture), "end")) == 1
    assert len(texts(parsed(charts_of(make_document())["density"].picture), "end")) == 3


def test_many_ranks_are_those_that_compute_longest() -> None:
    chart = charts_of(make_document(num_ranks=64))["rank-time"]
    assert texts(parsed(chart.picture), "tick") == [f"rank {rank}" for rank in range(44, 64)]
    assert "The 20 of 64 ranks that compute longest." in chart.note


def test_time_without_that_of_epochs_is_of_exchanges_alone() -> None:
    document = make_document()
    for epoch in document["epochs"]:
        for name in ("epoch_s", "longest_epoch_s", "computing_s"):
            del epoch["seconds"][name]
    document["time_by_rank"] = []
    charts = charts_of(document)
    picture = parsed(charts["time"].picture)
    assert texts(picture, "axis-name")[0] == "time of exchanges in an epoch, ms"
    assert "computing" not in texts(picture, "legend")
    assert "rank-time" not in charts


def test_rows_that_were_never_old_are_said_to_be_fresh() -> None:
    document = make_document()
    for epoch in document["epochs"]:
        epoch["halo"]["stale"] = []
    note = charts_of(document)["staleness"].note
    assert note == "No exchange computed with the rows of the epoch before."
