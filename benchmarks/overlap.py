"""Show from Horovod's timeline how much of the exchange lies inside backward.

    python benchmarks/overlap.py --picture docs/images/overlap.png
    python benchmarks/overlap.py --kinds lags --launcher "LAUNCHER --hosts {ranks} --"

Trains a stack of linear layers, with `hvd.DistributedOptimizer`, with top-k, and with densities
that adapt, with HOROVOD_TIMELINE set. The launcher gets a rank's command behind it; by default it
is horovodrun, on this machine. Horovod says when it negotiated and ran each operation; the
program, on the same clock, when backward ran and what its hooks did. Prints a table in Markdown of
medians over steps, and draws the fastest step of each.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import horovod.torch as hvd
import torch
from horovod_timeline import Operation, read_timeline
from launchers import RANKS_HOROVODRUN
from matplotlib import pyplot
from torch import Tensor, nn

import horovod_sylvie as hvs

LAYERS: Final = 6
MARKER: Final = "marker"
WARMUP_STEPS: Final = 20  # in which names are negotiated, and densities adapted
KINDS: Final = ("dense", "top-k", "lags")
COLOURS: Final = {
    "backward": "tab:gray",
    "selection": "tab:orange",
    "waiting": "lightsteelblue",
    "exchange": "tab:blue",
    "step()": "tab:green",
}


@dataclass(frozen=True)
class Span:
    """Something that took time. Seconds since the epoch."""

    name: str
    begin_s: float
    end_s: float


@dataclass
class StepRecord:
    """What the program saw of one step.

    Attributes:
        backward: When backward ran.
        step: When `optimizer.step()` ran.
        selections: When what is sent was selected; empty for stock Horovod.
    """

    backward: Span
    step: Span
    selections: list[Span] = field(default_factory=list)


class RecordingCommunicator(hvs.HorovodCommunicator):
    """Remembers when each operation was submitted: then its selection has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.submissions: list[tuple[str, float]] = []

    def _submit(self, kind: str, tensor: Tensor, name: str, start: Any) -> Any:
        self.submissions.append((name, time.time()))
        return super()._submit(kind, tensor, name, start)


def work(kind: str, width: int, batch: int, steps: int, record: Path) -> None:
    """Train on this rank; rank 0 writes what it saw."""
    torch.set_num_threads(1)
    hvd.init()
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(LAYERS)])
    plain = torch.optim.SGD(model.parameters(), lr=0.01)
    comm = RecordingCommunicator()
    optimizer: Any
    if kind == "dense":
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    else:
        sparse: Any = hvs.Compression.topk(density=0.01)
        optimizer = hvs.DistributedOptimizer(
            plain,
            model.named_parameters(),
            compression=hvs.Compression.lags() if kind == "lags" else sparse,
            comm=comm,
        )
    records = [train_step(model, optimizer, comm, batch, width) for _ in range(steps)]
    if hvd.rank() == 0:
        record.write_text(json.dumps(records, default=vars))


def train_step(
    model: nn.Module, optimizer: Any, comm: RecordingCommunicator, batch: int, width: int
) -> StepRecord:
    """Take one step, with the ranks in step at its beginning."""
    optimizer.zero_grad()
    loss = model(torch.randn(batch, width)).square().mean()
    hvd.allreduce(torch.zeros(1), name=MARKER)
    comm.submissions.clear()
    selection_s = selection_times(optimizer)
    begin_s = time.time()
    loss.backward()
    backward = Span("backward", begin_s, time.time())
    optimizer.step()
    ended_s = time.time()
    after_s = selection_times(optimizer)
    selections = [
        Span(name, end_s - (after_s[name] - selection_s.get(name, 0.0)), end_s)
        for name, end_s in comm.submissions
        if name in after_s
    ]
    return StepRecord(backward, Span("step()", backward.end_s, ended_s), selections)


def selection_times(optimizer: Any) -> dict[str, float]:
    """Return the seconds spent on selection so far, by operation."""
    if not hasattr(optimizer, "telemetry"):
        return {}
    report = optimizer.telemetry()
    return {
        f"sylvie.grad.{group.name}": group.selection_s * report.num_steps for group in report.groups
    }


def run(kind: str, args: argparse.Namespace, folder: Path) -> tuple[list[StepRecord], Path]:
    """Run the job; return what rank 0 saw, and the timeline."""
    record, timeline = folder / f"{kind}.json", folder / f"{kind}.timeline.json"
    command: list[Any] = shlex.split(args.launcher.format(ranks=args.ranks))
    command += [sys.executable, Path(__file__).resolve(), "--worker", kind, "--record", record]
    command += ["--width", args.width, "--batch", args.batch, "--steps", args.steps]
    subprocess.run(
        [str(part) for part in command],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=300,
        env=os.environ | {"HOROVOD_TIMELINE": str(timeline), "OMP_NUM_THREADS": "1"},
    )
    records = [
        StepRecord(
            Span(**each["backward"]),
            Span(**each["step"]),
            [Span(**span) for span in each["selections"]],
        )
        for each in json.loads(record.read_text())
    ]
    return records, timeline


def operations_of(step: StepRecord, operations: list[Operation]) -> list[Operation]:
    """Return the exchanges of one step, in the order in which they began."""
    own = [
        each
        for each in operations
        if each.name != MARKER
        and each.ended_s > step.backward.begin_s
        and each.negotiated_s < step.step.end_s
    ]
    return sorted(own, key=lambda each: each.began_s)


def row_of(kind: str, records: list[StepRecord], operations: list[Operation]) -> str:
    """Return a row of the table: medians over the steps after the warm-up."""
    counts, inside, exposed_s, backward_s, step_s = [], [], [], [], []
    for record in records[WARMUP_STEPS:]:
        own = operations_of(record, operations)
        end_s = record.backward.end_s
        counts.append(len(own))
        inside.append(sum(each.began_s < end_s for each in own) / len(own))
        backward_s.append(end_s - record.backward.begin_s)
        exposed_s.append(max(each.ended_s for each in own) - end_s)
        step_s.append(record.step.end_s - record.backward.begin_s)
    medians = [1e3 * statistics.median(each) for each in (backward_s, exposed_s, step_s)]
    return (
        f"| {kind} | {statistics.mode(counts)} | {100 * statistics.median(inside):.0f} % | "
        + " | ".join(f"{median:.0f}" for median in medians)
        + " |"
    )


def draw(panel: Any, title: str, record: StepRecord, operations: list[Operation]) -> None:
    """Draw one step: a line for the program, one for selecting, one for each exchange."""
    zero_s = record.backward.begin_s

    def bar(row: int, begin_s: float, end_s: float, what: str) -> None:
        left, width = 1e3 * (begin_s - zero_s), 1e3 * max(end_s - begin_s, 0.0)
        panel.barh(row, width, left=left, color=COLOURS[what], height=0.7)

    own = operations_of(record, operations)
    bar(0, record.backward.begin_s, record.backward.end_s, "backward")
    bar(0, record.step.begin_s, record.step.end_s, "step()")
    for span in record.selections:
        bar(1, span.begin_s, span.end_s, "selection")
    for row, operation in enumerate(own, start=2):
        bar(row, operation.negotiated_s, operation.began_s, "waiting")
        bar(row, operation.began_s, operation.ended_s, "exchange")
    labels = [each.name.removeprefix("sylvie.grad.") for each in own]
    panel.set_yticks(range(len(own) + 2), ["program", "selecting", *labels], fontsize=7)
    panel.axvline(1e3 * (record.backward.end_s - zero_s), color="black", linewidth=0.8)
    panel.invert_yaxis()
    panel.set(title=title, xlabel="milliseconds since backward began")
    panel.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Run both jobs, print the table and draw the picture; or be a rank of a job."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", choices=KINDS, nargs="+", default=KINDS[:2])
    parser.add_argument("--launcher", default=RANKS_HOROVODRUN, help="starts {ranks} ranks")
    parser.add_argument("--picture", type=Path, help="where to draw it")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--worker", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker is not None:
        work(args.worker, args.width, args.batch, args.steps, args.record)
        return
    print("| gradients | operations | begun in backward | backward, ms | exposed | both, ms |")
    print("|---|---|---|---|---|---|")
    figure, panels = pyplot.subplots(
        1, len(args.kinds), figsize=(12, 4), sharex=True, squeeze=False, constrained_layout=True
    )
    with tempfile.TemporaryDirectory() as name:
        for panel, kind in zip(panels[0], args.kinds, strict=True):
            records, timeline = run(kind, args, Path(name))
            operations = read_timeline(timeline)
            print(row_of(kind, records, operations))
            # The step that was disturbed least by whatever else the machine did
            fastest = min(
                records[WARMUP_STEPS:], key=lambda each: each.step.end_s - each.backward.begin_s
            )
            draw(panel, f"{kind}, rank 0 of {args.ranks}", fastest, operations)
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=colour) for colour in COLOURS.values()]
    figure.legend(handles, COLOURS, frameon=False, ncols=len(COLOURS), loc="outside lower center")
    if args.picture:
        figure.savefig(args.picture, dpi=110)


if __name__ == "__main__":
    main()
