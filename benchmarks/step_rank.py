"""One rank of one job of `step.py`: the ways of exchange in turn, side by side.

Every way has a model and an optimizer of its own, which live as long as the job does. Ways take
turns (A B C, A B C, ...), so that a machine which gets slower hits all of them alike. A step is
timed on rank 0 from the end of the one before it, the first of a turn from a barrier; between
them ranks wait for each other only where the way of exchange makes them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from emulated import ComputeTimes, EmulatedModel, RandomValues, measure_times
from step_ddp import DDP_WAYS, join_process_group, leave_process_group, wrap
from step_models import MODELS, make_loss, make_model
from step_ways import LAGS, WAYS, bytes_of, make_optimizer, predicted_of
from torch import Tensor, nn

import horovod_sylvie as hvs

COMPUTES: Final = ("emulated", "real")
_WARMUP_CHUNK: Final = 2  # steps between two looks at the clock


@dataclass(frozen=True)
class Pace:
    """How much time a job takes.

    Attributes:
        num_rounds: Turns of each way.
        turn_s: Seconds after which a turn takes no further step.
        warmup_s: Seconds after which warm-up ends, if it has not come to its last step.
        planning_s: The same for LAGS, which plans meanwhile.
        max_steps: Of a turn; at least there is 1.
    """

    num_rounds: int = 3
    turn_s: float = 1.0
    warmup_s: float = 1.0
    planning_s: float = 12.0
    max_steps: int = 40


@dataclass
class Contender:
    """One way of exchange, with its model.

    Attributes:
        way: Its name.
        model: Holds the parameters.
        loss_of: Computes forward.
        optimizer: Exchanges, and steps.
        steps_s: Seconds of each timed step.
        step_s: Seconds of the newest steps, to choose how many come next.
        bytes_sent: By this rank for a step, as of the newest turn.
    """

    way: str
    model: nn.Module
    loss_of: Callable[[], Tensor]
    optimizer: Any
    steps_s: list[float] = field(default_factory=list)
    step_s: float = 0.0
    bytes_sent: float = 0.0

    def run(self, num_steps: int) -> list[float]:
        """Train; return when each step ended, in seconds."""
        ends_s = []
        for _ in range(num_steps):
            self.optimizer.zero_grad()
            self.loss_of().backward()
            self.optimizer.step()
            ends_s.append(time.perf_counter())
        return ends_s


def make_contenders(
    model_name: str, compute: str, ways: Sequence[str], comm: hvs.Communicator
) -> tuple[list[Contender], ComputeTimes | None]:
    """Make all ways of exchange of one model.

    Args:
        model_name: One of `MODELS`.
        compute: "real" or "emulated".
        ways: Some of `WAYS`.
        comm: Of all ranks. Collective.

    Returns:
        A contender per way, and what is emulated.
    """
    models = []
    for _ in ways:
        torch.manual_seed(0)
        models.append(make_model(model_name))
    if any(way in DDP_WAYS for way in ways):
        join_process_group(comm)

    def called(way: str, module: nn.Module) -> nn.Module:
        return wrap(way, module) if way in DDP_WAYS else module

    times = None
    if compute == "emulated":
        loss_of = make_loss(model_name, models[0], comm.rank)
        times = shared_times(comm, lambda: measure_times(models[0], loss_of))
        num_elements = max(each.numel() for each in models[0].parameters())
        values = RandomValues(num_elements, seed=comm.rank)
        losses: list[Callable[[], Tensor]] = [
            called(way, EmulatedModel(model, times, values))
            for way, model in zip(ways, models, strict=True)
        ]
    else:
        losses = [
            make_loss(model_name, called(way, model), comm.rank)
            for way, model in zip(ways, models, strict=True)
        ]
    contenders = [
        Contender(way, model, loss_of, make_optimizer(way, model, comm))
        for way, model, loss_of in zip(ways, models, losses, strict=True)
    ]
    return contenders, times


def shared_times(comm: hvs.Communicator, measure: Callable[[], ComputeTimes]) -> ComputeTimes:
    """Measure on rank 0 while the others sleep, and return its times on every rank. Collective."""
    await_all(comm)
    text = measure().to_json() if comm.rank == 0 else ""
    texts = hvs.gather_bytes(comm, text.encode(), name="step.times")
    return ComputeTimes.from_json(texts[0].decode())


def await_all(comm: hvs.Communicator) -> None:
    """Wait for every rank. Collective."""
    comm.allreduce(torch.zeros(1), name="step.barrier").wait()


def agreed(comm: hvs.Communicator, value: float) -> float:
    """Return rank 0's value on every rank. Collective."""
    own = torch.tensor([value if comm.rank == 0 else 0.0], dtype=torch.float64)
    return float(comm.allreduce(own, name="step.agreed").wait())


def warm_up(comm: hvs.Communicator, contender: Contender, pace: Pace) -> None:
    """Step until plans, caches and guesses have settled, or time is up. Collective."""
    plans = contender.way == LAGS
    most, limit_s = (20, pace.planning_s) if plans else (4, pace.warmup_s)
    await_all(comm)
    begun_s = before_s = time.perf_counter()
    for _ in range(0, most, _WARMUP_CHUNK):
        contender.run(_WARMUP_CHUNK)
        now_s = time.perf_counter()
        contender.step_s = agreed(comm, (now_s - before_s) / _WARMUP_CHUNK)
        if agreed(comm, now_s - begun_s) > limit_s:
            return
        before_s = time.perf_counter()


def take_turn(comm: hvs.Communicator, contender: Contender, pace: Pace) -> None:
    """Time some steps. Collective."""
    wanted = math.ceil(pace.turn_s / max(contender.step_s, 1e-9))
    num_steps = min(max(wanted, 1), pace.max_steps)
    await_all(comm)
    times_s = [time.perf_counter(), *contender.run(num_steps)]
    steps_s = [after - before for before, after in itertools.pairwise(times_s)]
    contender.steps_s += steps_s
    contender.step_s = agreed(comm, statistics.median(steps_s))
    # Right after a new plan nothing has been counted yet
    now = bytes_of(contender.way, contender.optimizer, contender.model, comm.size)
    contender.bytes_sent = now or contender.bytes_sent


def figures_of(contender: Contender) -> dict[str, Any]:
    """Return what is kept of one way: seconds of a step (median, quartiles), bytes per step."""
    quartiles = (
        statistics.quantiles(contender.steps_s, method="inclusive")
        if len(contender.steps_s) > 1
        else 3 * contender.steps_s
    )
    figures = {
        "step_s": quartiles[1],
        "quartiles_s": [quartiles[0], quartiles[2]],
        "num_steps": len(contender.steps_s),
        "bytes_sent": contender.bytes_sent,
    }
    predicted_s = predicted_of(contender.optimizer)
    return figures if predicted_s is None else figures | {"predicted_step_s": predicted_s}


def run_job(
    model_name: str, compute: str, ways: Sequence[str], comm: hvs.Communicator, pace: Pace
) -> dict[str, Any]:
    """Measure all ways.

    Args:
        model_name: One of `MODELS`.
        compute: "real" or "emulated".
        ways: Some of `WAYS`.
        comm: Of all ranks. Collective.
        pace: How long.

    Returns:
        What rank 0 saw: figures by way, and the seconds that were emulated.
    """
    contenders, times = make_contenders(model_name, compute, ways, comm)
    for contender in contenders:
        warm_up(comm, contender, pace)
    for _ in range(pace.num_rounds):
        for contender in contenders:
            take_turn(comm, contender, pace)
    report: dict[str, Any] = {
        "num_parameters": sum(each.numel() for each in contenders[0].model.parameters()),
        "ways": {each.way: figures_of(each) for each in contenders},
    }
    if times is not None:
        report["emulated_s"] = {"forward": times.forward_s, "backward": times.backward_s}
    return report


def main() -> None:
    """Be a rank of a job; rank 0 writes the report."""
    import horovod.torch as hvd

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--compute", choices=COMPUTES, required=True)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--rounds", type=int, default=Pace.num_rounds)
    parser.add_argument("--turn-s", type=float, default=Pace.turn_s)
    parser.add_argument("--report", type=Path, required=True, help="where rank 0 writes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    pace = Pace(num_rounds=args.rounds, turn_s=args.turn_s)
    comm = hvs.HorovodCommunicator()
    report = run_job(args.model, args.compute, args.ways.split(","), comm, pace)
    if comm.rank == 0:
        args.report.write_text(json.dumps(report))
    leave_process_group(comm)
    hvd.shutdown()


if __name__ == "__main__":
    main()
