"""Tables and picture of the step benchmark say what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="needs the extra [examples]")

from step_report import bits_per_second, draw, ordered, ratio_of, tables
from step_ways import LAGS


def job(
    hosts: int, rate: str, model: str, compute: str = "emulated", **ways: Any
) -> dict[str, Any]:
    base = {"no exchange": {"step_s": 0.1, "bytes_sent": 0.0}}
    return {
        "hosts": hosts,
        "rate": rate,
        "model": model,
        "compute": compute,
        "num_parameters": 9_453_578,
        "ways": base | ways,
    }


def sparse(step_s: float, **more: float) -> dict[str, dict[str, float]]:
    return {"top-k 1 %": {"step_s": step_s, "bytes_sent": 448_000.0} | more}


def keyed(*jobs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {str(number): each for number, each in enumerate(jobs)}


def test_rates_sort_by_their_bits() -> None:
    rates = ["unlimited", "1gbit", "500mbit", "2.5gbit", "800kbit", "64bit"]
    assert [bits_per_second(rate) for rate in rates[1:]] == [1e9, 5e8, 2.5e9, 8e5, 64.0]
    assert sorted(rates, key=bits_per_second)[-1] == "unlimited"


def test_jobs_are_ordered_by_compute_hosts_model_and_rate() -> None:
    jobs = [
        job(4, "1gbit", "mlp"),
        job(2, "unlimited", "lstm"),
        job(2, "1gbit", "lstm", "real"),
        job(2, "1gbit", "lstm"),
        job(2, "500mbit", "lstm"),
        job(2, "1gbit", "mlp"),
    ]
    order = [
        (each["compute"], each["hosts"], each["model"], each["rate"])
        for each in ordered(keyed(*jobs))
    ]
    assert order == [
        ("emulated", 2, "mlp", "1gbit"),
        ("emulated", 2, "lstm", "500mbit"),
        ("emulated", 2, "lstm", "1gbit"),
        ("emulated", 2, "lstm", "unlimited"),
        ("emulated", 4, "mlp", "1gbit"),
        ("real", 2, "lstm", "1gbit"),
    ]


def test_table_has_ratios_bytes_and_the_base() -> None:
    first = job(2, "1gbit", "mlp", **sparse(0.115))
    second = job(2, "100mbit", "mlp", **{"dense float32": {"step_s": 1.2, "bytes_sent": 38e6}})
    assert tables(keyed(first, second)).splitlines() == [
        "Emulated compute, 2 hosts: ratio to no exchange (MB sent per rank and step)",
        "",
        "| model | rate | no exchange, ms | dense float32 | top-k 1 % |",
        "|---|---|---|---|---|",
        "| mlp, 9.5 M | 100mbit | 100 | 12.00 (38) |  |",
        "| mlp, 9.5 M | 1gbit | 100 |  | 1.15 (0.45) |",
    ]


def test_tables_are_one_for_each_compute_and_number_of_hosts() -> None:
    jobs = [job(2, "1gbit", "mlp"), job(4, "1gbit", "mlp"), job(2, "1gbit", "mlp", "real")]
    titles = [line for line in tables(keyed(*jobs)).splitlines() if "compute" in line]
    assert [title.partition(":")[0] for title in titles] == [
        "Emulated compute, 2 hosts",
        "Emulated compute, 4 hosts",
        "Real compute, 2 hosts",
    ]


def test_job_without_a_base_has_no_ratios() -> None:
    lone = job(2, "1gbit", "mlp", **sparse(0.115))
    del lone["ways"]["no exchange"]
    assert ratio_of(lone, "top-k 1 %") is None
    assert tables(keyed(lone)).splitlines()[-1] == "| mlp, 9.5 M | 1gbit |  |  |"


def test_picture_has_a_panel_for_each_model_and_number_of_hosts(tmp_path: Path) -> None:
    jobs = [
        job(hosts, rate, model, **sparse(0.1 * hosts))
        for hosts in (2, 4)
        for rate in ("100mbit", "unlimited")
        for model in ("mlp", "lstm")
    ]
    draw(keyed(*jobs), "emulated", tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes()[:4] == b"\x89PNG"


def test_picture_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected some jobs with 'real' for 'compute', got none"):
        draw(keyed(job(2, "1gbit", "mlp")), "real", tmp_path / "none.png")
    assert not list(tmp_path.iterdir())


def test_prediction_of_lags_has_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("step_report.WAYS", ("no exchange", LAGS))
    figures = {"step_s": 0.11, "bytes_sent": 1e5, "predicted_step_s": 0.104}
    lines = tables(keyed(job(2, "1gbit", "mlp", **{LAGS: figures}))).splitlines()
    assert lines[2] == "| model | rate | no exchange, ms | LAGS | LAGS, as predicted |"
    assert lines[4] == "| mlp, 9.5 M | 1gbit | 100 | 1.10 (0.1) | 1.04 |"
