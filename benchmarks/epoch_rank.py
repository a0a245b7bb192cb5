"""One rank of one job of `epoch.py`: the ways of halo exchange in turn, side by side.

Every way has a model, a halo exchange and an optimizer of its own, which live as long as the job
does; in full-graph training a step is an epoch. Ways take turns (A B C, A B C, ...), so that a
machine which gets slower hits all of them alike. Each turn begins with a barrier and an epoch that
is not timed, after which exchanges that may run an epoch late are under way as they are later on,
and ends when nothing is in flight any more.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from emulated_gnn import EmulatedGNN, SlowValues
from epoch_model import MODELS, make_model
from epoch_ways import PLAIN, WAYS, make_halo, make_optimizer
from step_rank import COMPUTES, Contender, Pace, agreed, await_all, figures_of
from torch import Tensor, nn
from traced_gnn import EpochTimes, TracedHalo, measure_epoch

import horovod_sylvie as hvs

_WARMUP_EPOCHS: Final = 3
# Automatic tries for 9 epochs, and rows of the epoch before are not used in the first 5
_LONG_WARMUP_EPOCHS: Final = 12


@dataclass(frozen=True)
class Size:
    """The network.

    Attributes:
        model: One of `MODELS`.
        hidden: Units of a hidden layer.
        layers: Number of convolutions.
    """

    model: str
    hidden: int = 256
    layers: int = 3


@dataclass
class Trainer:
    """One way of exchange.

    Attributes:
        contender: Takes the epochs.
        halo: The way's halo exchange.
        num_epochs: Since warm-up, those that were not timed too.
        traffic: Of halo rows until the end of warm-up.
        stale_shares: Of the exchanges, how many used rows of the epoch before; in the last epoch of
            each turn.
    """

    contender: Contender
    halo: hvs.HaloExchange
    num_epochs: int = 0
    traffic: hvs.Traffic = field(default_factory=hvs.Traffic)
    stale_shares: list[float] = field(default_factory=list)

    def run(self, num_epochs: int) -> list[float]:
        """Train for one epoch more, then drain; return seconds of each epoch but the first."""
        ends_s = self.contender.run(num_epochs + 1)
        self.halo.drain()
        self.num_epochs += num_epochs + 1
        return [after - before for before, after in itertools.pairwise(ends_s)]

    def warm_up(self, comm: hvs.Communicator) -> None:
        """Take epochs until plans and caches have settled. Collective."""
        settles = self.halo.staleness.keeps_rows or isinstance(self.halo.codec, hvs.Automatic)
        await_all(comm)
        seconds = self.run(_LONG_WARMUP_EPOCHS if settles else _WARMUP_EPOCHS)
        self.contender.step_s = agreed(comm, statistics.median(seconds[-_WARMUP_EPOCHS:]))
        self.num_epochs, self.traffic = 0, self._traffic()

    def take_turn(self, comm: hvs.Communicator, pace: Pace) -> None:
        """Time some epochs. Collective."""
        wanted = math.ceil(pace.turn_s / max(self.contender.step_s, 1e-9))
        await_all(comm)
        seconds = self.run(min(max(wanted, 1), pace.max_steps))
        self.contender.steps_s += seconds
        self.contender.step_s = agreed(comm, statistics.median(seconds))
        last = self.halo.last_epoch
        if last is not None and last.layers:
            self.stale_shares.append(len(last.stale) / len(last.layers))

    def figures(self, comm: hvs.Communicator) -> dict[str, Any]:
        """Return what is kept of the way. Collective.

        Seconds of an epoch (median, quartiles) on the slowest rank, for which training waits.
        Bytes that a rank sends in one, the mean over ranks: for gradients as rings send them, for
        halo rows as they are; and how many times as much full precision sends for those. The share
        of exchanges that used older rows.
        """
        halo, gradients = self._traffic() - self.traffic, 0.0
        if hasattr(self.contender.optimizer, "telemetry"):
            groups = self.contender.optimizer.telemetry().groups
            gradients = sum(group.bytes_sent for group in groups)
        own = [halo.bytes_sent / self.num_epochs, gradients]
        total = comm.allreduce(torch.tensor(own, dtype=torch.float64), name="epoch.bytes")
        halo_bytes, gradient_bytes = (total.wait() / comm.size).tolist()
        seconds = max(_from_all(comm, figures_of(self.contender)), key=lambda each: each["step_s"])
        return {
            "epoch_s": seconds["step_s"],
            "quartiles_s": seconds["quartiles_s"],
            "num_epochs": seconds["num_steps"],
            "bytes_sent": halo_bytes + gradient_bytes,
            "halo_bytes_sent": halo_bytes,
            "compression": halo.bytes_full_precision / max(halo.bytes_sent, 1),
            "stale_share": statistics.fmean(self.stale_shares) if self.stale_shares else 0.0,
        }

    def _traffic(self) -> hvs.Traffic:
        return self.halo.traffic.total("forward", "backward")


def make_trainers(
    size: Size,
    ways: Sequence[str],
    part: hvs.Partition,
    comm: hvs.Communicator,
    times: EpochTimes | None,
    plain_times: EpochTimes | None = None,
) -> list[Trainer]:
    """Make all ways of exchange of one network. Collective.

    Args:
        size: The network.
        ways: Some of `WAYS`.
        part: This rank's partition.
        comm: Of all ranks.
        times: What is emulated on this rank; None to compute.
        plain_times: The same for the plain way.

    Returns:
        One for each way.
    """
    torch.manual_seed(0)
    values = None if times is None else SlowValues(_most_elements(size, part), seed=comm.rank)
    trainers = []
    for way in ways:
        halo = make_halo(way, part, comm)
        model, loss_of = _make_model(size, way, part, halo)
        loss: Callable[[], Tensor] = loss_of
        if times is not None and values is not None:
            emulated = plain_times if way == PLAIN and plain_times is not None else times
            loss = EmulatedGNN(model, emulated, halo, values, prefix=f"{way}.")
        optimizer = make_optimizer(way, model, halo)
        trainers.append(Trainer(Contender(way, model, loss, optimizer), halo))
    return trainers


def measure_alone(
    size: Size, part: hvs.Partition, comm: hvs.Communicator, *, is_plain: bool = False
) -> EpochTimes:
    """Measure how long this rank computes while the others sleep. Collective.

    Args:
        size: The network.
        part: This rank's partition.
        comm: Of all ranks.
        is_plain: Whether layers wait for all rows, of their input.

    Returns:
        This rank's times.
    """
    halo = TracedHalo(part, comm, is_plain=is_plain)
    model, loss_of = _make_model(size, "alone", part, halo)
    loss_of()  # fetches features, which ranks do together
    times: list[EpochTimes] = []
    for rank in range(comm.size):
        await_all(comm)
        if rank == comm.rank:
            times.append(measure_epoch(model, loss_of, halo))
    await_all(comm)
    return times[0]


def _make_model(
    size: Size, way: str, part: hvs.Partition, halo: hvs.HaloExchange
) -> tuple[nn.Module, Callable[[], Tensor]]:
    return make_model(size.model, way, part, halo, hidden=size.hidden, layers=size.layers)


def _most_elements(size: Size, part: hvs.Partition) -> int:
    """Return how many elements the largest rows or weights have."""
    widest = max(size.hidden, part.num_features, part.num_classes)
    return widest * max(part.num_inner, part.num_halo, 2 * widest)


def run_job(
    size: Size,
    compute: str,
    ways: Sequence[str],
    part: hvs.Partition,
    comm: hvs.Communicator,
    pace: Pace,
) -> dict[str, Any]:
    """Measure all ways.

    Args:
        size: The network.
        compute: "real" or "emulated".
        ways: Some of `WAYS`.
        part: This rank's partition.
        comm: Of all ranks. Collective.
        pace: How long.

    Returns:
        Figures by way; and of each rank its rows, and the seconds of an epoch that are emulated.
    """
    times = plain_times = None
    if compute == "emulated":
        times = measure_alone(size, part, comm)
        if PLAIN in ways:
            plain_times = measure_alone(size, part, comm, is_plain=True)
    trainers = make_trainers(size, ways, part, comm, times, plain_times)
    for trainer in trainers:
        trainer.warm_up(comm)
    for _ in range(pace.num_rounds):
        for trainer in trainers:
            trainer.take_turn(comm, pace)
    report: dict[str, Any] = {
        "ways": {each.contender.way: each.figures(comm) for each in trainers},
        "inner_rows": _from_all(comm, part.num_inner),
        "halo_rows": _from_all(comm, part.num_halo),
    }
    if times is not None:
        report["emulated_s"] = {
            "forward": _from_all(comm, times.whole.forward_s),
            "backward": _from_all(comm, times.whole.backward_s),
        }
    return report


def _from_all(comm: hvs.Communicator, value: Any) -> list[Any]:
    """Return every rank's value, something that JSON holds. Collective."""
    texts = hvs.gather_bytes(comm, json.dumps(value).encode(), name="epoch.value")
    return [json.loads(text) for text in texts]


def main() -> None:
    """Be a rank of a job; rank 0 writes the report."""
    import horovod.torch as hvd

    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--parts", type=Path, required=True, help="partition directory")
    add("--model", choices=MODELS, required=True)
    add("--hidden", type=int, default=Size.hidden)
    add("--layers", type=int, default=Size.layers)
    add("--compute", choices=COMPUTES, required=True)
    add("--ways", default=",".join(WAYS))
    add("--rounds", type=int, default=Pace.num_rounds)
    add("--turn-s", type=float, default=Pace.turn_s)
    add("--report", type=Path, required=True, help="where rank 0 writes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    comm = hvs.HorovodCommunicator()
    part = hvs.load_partition(args.parts, comm.rank, comm.size)
    size = Size(args.model, args.hidden, args.layers)
    pace = Pace(num_rounds=args.rounds, turn_s=args.turn_s)
    report = run_job(size, args.compute, args.ways.split(","), part, comm, pace)
    if comm.rank == 0:
        args.report.write_text(json.dumps(report))
    hvd.shutdown()


if __name__ == "__main__":
    main()
