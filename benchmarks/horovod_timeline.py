"""Read what HOROVOD_TIMELINE writes: when each operation was negotiated, and when it ran."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Operation:
    """One operation, from its negotiation to its end. Seconds since the epoch."""

    name: str
    negotiated_s: float
    began_s: float
    ended_s: float


def read_timeline(path: Path) -> list[Operation]:
    """Read every operation of a timeline."""
    events: list[dict[str, Any]] = json.loads(path.read_text())
    began_us = events[0]["args"]["start_time_since_epoch_in_micros"]
    names = {each["pid"]: each["args"]["name"] for each in events if "name" in each.get("args", {})}
    operations = []
    open_spans: dict[int, list[tuple[str, float]]] = {}
    negotiated: dict[int, float] = {}
    for event in events:
        pid, time_s = event.get("pid"), (began_us + event.get("ts", 0)) / 1e6
        if event["ph"] == "B":
            open_spans.setdefault(pid, []).append((event["name"], time_s))
        elif event["ph"] == "E" and open_spans.get(pid):
            name, begin_s = open_spans[pid].pop()
            if name.startswith("NEGOTIATE"):
                negotiated[pid] = begin_s
            elif not open_spans[pid]:  # the whole operation, with its parts
                name = names[pid].partition(".")[2]
                operations.append(Operation(name, negotiated.pop(pid), begin_s, time_s))
    return operations
