"""The picture of the speed-up shows what was measured, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="needs the extra [examples]")

import speed_up
from speed_up import RATES, RESULTS, bars_of, draw, gradient_bars, halo_bars, select


def measured(name: str) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return results


def job(**times_s: float) -> dict[str, Any]:
    ways = {way.replace("_", " "): {"step_s": seconds} for way, seconds in times_s.items()}
    return {"hosts": 4, "compute": "emulated", "model": "mlp", "ways": ways}


def test_bars_are_ratios_to_the_usual_way_and_limits_those_of_no_exchange() -> None:
    jobs = [job(usual=6.0, ours=2.0, no_exchange=1.5), job(usual=1.0, ours=2.0, no_exchange=1.0)]
    bars = bars_of("ours", jobs, "ours", "usual", "step_s")
    assert bars.speed_ups == (3.0, 0.5)
    assert bars.limits == (4.0, 1.0)


def test_job_that_is_missing_or_there_twice_raises() -> None:
    with pytest.raises(ValueError, match=r"select: expected one job with .*'mlp'.*, got 0"):
        select({"jobs": {}}, model="mlp")
    with pytest.raises(ValueError, match="got 2"):
        select({"jobs": {"a": job(), "b": job()}}, model="mlp")


def test_no_measured_exchange_beats_none_at_all() -> None:
    for bars in (
        *gradient_bars(measured("step.json")),
        *halo_bars(measured("epoch.json")),
    ):
        assert len(bars.speed_ups) == len(RATES)
        assert all(
            0 < ours <= limit for ours, limit in zip(bars.speed_ups, bars.limits, strict=True)
        )


def test_picture_has_a_number_for_each_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panels: list[Any] = []
    one_panel = speed_up.draw_panel
    monkeypatch.setattr(
        speed_up, "draw_panel", lambda *args: (panels.append(args[0]), one_panel(*args))
    )
    draw(measured("step.json"), measured("epoch.json"), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000
    for panel in panels:
        heights = [f"{bar.get_height():.1f}" for bar in panel.patches]
        assert [text.get_text() for text in panel.texts] == heights
        assert len(heights) == 3 * len(RATES)
