"""Horovod's own timeline of a real job: what is negotiated anew, and when exchanges begin.

Horovod draws a bar for the negotiation of each operation. Where an operation is not in the
response cache, ranks send requests to the coordinator, which marks each as a tick in the bar, with
the rank's number. Where it is in the cache on all ranks, they only combine a bit vector, and the
bar has no tick. So a bar without ticks is the evidence of a cached operation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.launcher import horovodrun

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
pytestmark = [pytest.mark.launcher, pytest.mark.timeout(150)]

STEPS, WARMUP_STEPS, LAYERS = 10, 4, 5


@dataclass(frozen=True)
class Negotiation:
    """One bar.

    Attributes:
        begin_us: Since the epoch.
        num_ticks: Requests of ranks in it; 0 where the operation was cached.
    """

    begin_us: float
    num_ticks: int


@dataclass(frozen=True)
class Run:
    """What is known of a job.

    Attributes:
        negotiations: By the operation's name in the timeline.
        backward: Begin and end of each step's backward, since the epoch.
        submitted: Name and time of every submission of the optimizer.
    """

    negotiations: dict[str, list[Negotiation]]
    backward: list[tuple[float, float]]
    submitted: list[tuple[str, float]]


def read_negotiations(timeline: Path) -> dict[str, list[Negotiation]]:
    events: list[dict[str, Any]] = json.loads(timeline.read_text())
    began_us = events[0]["args"]["start_time_since_epoch_in_micros"]
    names = {e["pid"]: e["args"]["name"] for e in events if "name" in e.get("args", {})}
    negotiations: dict[str, list[Negotiation]] = {}
    open_bars: dict[int, tuple[float, int]] = {}
    for event in events:
        pid = event.get("pid")
        if event["ph"] == "B" and event["name"].startswith("NEGOTIATE"):
            open_bars[pid] = began_us + event["ts"], 0
        elif event["ph"] == "X" and pid in open_bars:
            begin_us, num_ticks = open_bars[pid]
            open_bars[pid] = begin_us, num_ticks + 1
        elif event["ph"] == "E" and pid in open_bars:
            negotiations.setdefault(names[pid], []).append(Negotiation(*open_bars.pop(pid)))
    return negotiations


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("timeline")
    timeline, record = folder / "timeline.json", folder / "record.json"
    program = "tests/programs/optimizer_timeline.py"
    job = horovodrun(2, program, record, timeout_s=100, HOROVOD_TIMELINE=str(timeline))
    assert job.returncode == 0, job.output
    recorded = json.loads(record.read_text())
    return Run(read_negotiations(timeline), **recorded)


def test_layers_are_negotiated_only_where_their_payload_changes_its_size(run: Run) -> None:
    for layer in range(LAYERS):
        bars = run.negotiations[f"allgather.sylvie.grad.{layer}.weight"]
        assert [bar.num_ticks > 0 for bar in bars] == [
            step in (0, WARMUP_STEPS) for step in range(STEPS)
        ]
    (fused,) = [name for name in run.negotiations if name.endswith(".fused")]
    assert [bar.num_ticks > 0 for bar in run.negotiations[fused]] == [True] + [False] * (STEPS - 1)


def test_checks_between_ranks_take_part_in_the_first_step_only(run: Run) -> None:
    for name in ("agreement", "status"):
        assert len(run.negotiations[f"allgather.sylvie.{name}"]) == 1
    ours = [name for name in run.negotiations if "sylvie" in name]
    assert len(ours) == LAYERS + 1 + 2  # layers, the fused biases, the two checks


def test_operation_that_is_never_cached_has_ticks_in_every_step(run: Run) -> None:
    """The criterion can fail: Horovod does not cache broadcasts."""
    assert [bar.num_ticks for bar in run.negotiations["broadcast.never cached"]] == [2] * STEPS


def test_exchanges_are_submitted_inside_backward_last_layer_first(run: Run) -> None:
    for begin_us, end_us in run.backward[1:]:  # the first step checks the plan after backward
        during = [name for name, time_us in run.submitted if begin_us < time_us < end_us]
        layers = [name for name in during if name.endswith(".weight")]
        assert layers == [f"sylvie.grad.{layer}.weight" for layer in reversed(range(LAYERS))]
        assert len(during) == LAYERS + 1


def test_horovod_takes_up_exchanges_before_backward_has_ended(run: Run) -> None:
    bars = run.negotiations[f"allgather.sylvie.grad.{LAYERS - 1}.weight"]
    ends = [end_us for _, end_us in run.backward]
    early = [bar.begin_us < end_us for bar, end_us in zip(bars, ends, strict=True)]
    assert not early[0]  # the first step checks the plan after backward
    assert any(early[1:])  # Horovod looks once a millisecond, and a backward takes several
