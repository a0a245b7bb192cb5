"""One rank of `link_change.py`: trains with densities that adapt, while the link changes.

After `change_at` steps rank 0 runs the command that changes the link; nobody else is told.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from time_to_loss_rank import endless
from torch.nn import functional

import horovod_sylvie as hvs

sys.path.append(str(Path(__file__).parents[1]))

from examples.dense_data import Dataset, read_dataset  # their place is known only now
from examples.dense_models import make_model


@dataclass(frozen=True)
class Schedule:
    """What is trained, and when the link changes.

    Attributes:
        num_steps: In all.
        change_at: Steps before the change.
        width: Hidden units of the perceptron's two layers.
        batch_size: Examples of a rank's batch.
        lr: Of SGD with momentum 0.9.
    """

    num_steps: int = 400
    change_at: int = 200
    width: int = 2048
    batch_size: int = 256
    lr: float = 0.02


@dataclass
class Log:
    """What a rank saw.

    Attributes:
        steps_s: Seconds of each step.
        losses: Of each step, on this rank's batch.
        plans: Digest, first step, groups, least and greatest density and predicted step of each.
    """

    steps_s: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    plans: list[dict[str, Any]] = field(default_factory=list)

    def note_plan(self, optimizer: Any, step: int) -> None:
        """Note the plan of the next step, where it is a new one."""
        report = optimizer.telemetry().plan
        if report.plan is None or (self.plans and self.plans[-1]["digest"] == report.digest):
            return
        densities = {group.density for group in report.plan.groups if group.kind != "dense"}
        self.plans.append(
            {
                "digest": report.digest,
                "from_step": step,
                "densities": [min(densities, default=1.0), max(densities, default=1.0)],
                "num_groups": len(report.plan.groups),
                "predicted_step_s": report.predicted_step_s,
            }
        )


def train(data: Dataset, schedule: Schedule, change: str, comm: hvs.Communicator) -> Log:
    """Train, and change the link on the way.

    Args:
        data: The same on every rank.
        schedule: What, and when.
        change: A command of the shell, which rank 0 runs.
        comm: Of all ranks. Collective.

    Raises:
        subprocess.CalledProcessError: The command failed, on rank 0.
    """
    torch.manual_seed(0)
    model = make_model("mlp", tuple(data.x_train.shape[1:]), data.num_classes, schedule.width)
    optimizer = hvs.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=schedule.lr, momentum=0.9),
        model.named_parameters(),
        compression=hvs.Compression.lags(),
        momentum="dgc",
        comm=comm,
    )
    log = Log()
    batches = endless(data, schedule.batch_size, comm)
    for step in range(schedule.num_steps):
        if step == schedule.change_at and comm.rank == 0:
            subprocess.run(change, shell=True, check=True)  # the user's own command
        started_s = time.perf_counter()
        inputs, classes = next(batches)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs), classes)
        loss.backward()
        optimizer.step()
        log.steps_s.append(round(time.perf_counter() - started_s, 5))
        log.losses.append(round(float(loss.detach()), 4))
        log.note_plan(optimizer, step + 1)
    return log


def main() -> None:
    """Be a rank of a job; rank 0 writes the report."""
    import horovod.torch as hvd

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="as of examples/dense.py")
    parser.add_argument("--change", required=True, help="command that changes the link")
    parser.add_argument("--schedule", required=True, help="JSON: fields of Schedule")
    parser.add_argument("--report", type=Path, required=True, help="where rank 0 writes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    comm = hvs.HorovodCommunicator()
    data = read_dataset(args.data, chunk=1, as_text=False)
    log = train(data, Schedule(**json.loads(args.schedule)), args.change, comm)
    digests = " ".join(f"{each['from_step']}:{each['digest']}" for each in log.plans)
    texts = hvs.gather_bytes(comm, digests.encode(), name="link_change.plans")
    if comm.rank == 0:
        same = all(text == texts[0] for text in texts)
        args.report.write_text(json.dumps(asdict(log) | {"same_plans": same}))
    comm.allreduce(torch.zeros(1), name="link_change.end").wait()
    hvd.shutdown()


if __name__ == "__main__":
    main()
