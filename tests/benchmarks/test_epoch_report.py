"""Tables of the epoch benchmark say what was measured."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="needs the extra [examples]")

from epoch_report import communication_share, every_way, ordered, overview, ratio_of


def figures(epoch_s: float, bytes_sent: float = 0.0, stale_share: float = 0.0) -> dict[str, float]:
    return {"epoch_s": epoch_s, "bytes_sent": bytes_sent, "stale_share": stale_share}


def job(
    hosts: int, rate: str, model: str = "sage", compute: str = "emulated", **ways: Any
) -> dict[str, Any]:
    base = {"no exchange": figures(0.1), "full precision": figures(0.4, 36e6)}
    return {
        "hosts": hosts,
        "rate": rate,
        "model": model,
        "hidden": 256,
        "layers": 3,
        "compute": compute,
        "graph": "a graph",
        "ways": base | ways,
    }


def keyed(*jobs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {str(number): each for number, each in enumerate(jobs)}


ONE_BIT = {"one bit": figures(0.16, 1.5e6), "one bit pipelined": figures(0.12, 1.5e6, 1.0)}


def test_jobs_are_ordered_by_compute_model_hosts_and_rate() -> None:
    jobs = [
        job(2, "1gbit", compute="real"),
        job(2, "1gbit", "gcn"),
        job(4, "1gbit"),
        job(2, "unlimited"),
        job(2, "500mbit"),
    ]
    order = [
        (each["compute"], each["model"], each["hosts"], each["rate"])
        for each in ordered(keyed(*jobs))
    ]
    assert order == [
        ("emulated", "sage", 2, "500mbit"),
        ("emulated", "sage", 2, "unlimited"),
        ("emulated", "sage", 4, "1gbit"),
        ("emulated", "gcn", 2, "1gbit"),
        ("real", "sage", 2, "1gbit"),
    ]


def test_communication_is_what_an_epoch_without_exchange_leaves_of_one_in_full_precision() -> None:
    whole = job(2, "1gbit")
    assert communication_share(whole) == 0.75
    assert ratio_of(whole, "full precision", "no exchange") == 4.0
    del whole["ways"]["no exchange"]
    assert communication_share(whole) is None


def test_overview_has_a_line_for_each_job() -> None:
    table = overview(keyed(job(4, "1gbit", **ONE_BIT), job(2, "1gbit")))
    assert table.splitlines() == [
        "Emulated compute, a graph: ratio to full precision (MB sent per rank and epoch)",
        "",
        "| model | hosts | rate | full precision, ms | communication | no exchange | one bit "
        "| one bit pipelined |",
        "|---|---|---|---|---|---|---|---|",
        "| sage, 3 layers of 256 | 2 | 1gbit | 400 (36) | 75 % | 0.25 |  |  |",
        "| sage, 3 layers of 256 | 4 | 1gbit | 400 (36) | 75 % | 0.25 | 0.40 (1.5) | 0.30 (1.5) |",
    ]


def test_overview_is_one_table_for_each_compute() -> None:
    table = overview(keyed(job(2, "1gbit"), job(2, "1gbit", compute="real")))
    titles = [line.partition(",")[0] for line in table.splitlines() if "compute" in line]
    assert titles == ["Emulated compute", "Real compute"]


def test_tables_of_every_way_have_all_figures() -> None:
    assert every_way(keyed(job(4, "1gbit", **ONE_BIT))).splitlines() == [
        "sage, 3 layers of 256, 4 hosts, 1gbit, emulated compute, a graph; communication of an "
        "epoch in full precision: 75 %",
        "",
        "| way | epoch, ms | to full precision | to no exchange | MB sent per rank and epoch "
        "| exchanges with rows of the epoch before |",
        "|---|---|---|---|---|---|",
        "| no exchange | 100 | 0.25 | 1.00 | 0 | 0 % |",
        "| full precision | 400 | 1.00 | 4.00 | 36 | 0 % |",
        "| one bit | 160 | 0.40 | 1.60 | 1.5 | 0 % |",
        "| one bit pipelined | 120 | 0.30 | 1.20 | 1.5 | 100 % |",
    ]


def test_job_without_full_precision_has_no_ratio_to_it() -> None:
    lone = job(2, "1gbit", **ONE_BIT)
    del lone["ways"]["full precision"]
    assert overview(keyed(lone)).splitlines()[-1] == (
        "| sage, 3 layers of 256 | 2 | 1gbit |  |  |  |  (1.5) |  (1.5) |"
    )
    assert every_way(keyed(lone)).splitlines()[0].endswith("full precision: unknown")
    assert every_way(keyed(lone)).splitlines()[-1] == (
        "| one bit pipelined | 120 |  | 1.20 | 1.5 | 100 % |"
    )
