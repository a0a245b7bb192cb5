"""One rank of one job of `time_to_loss.py`: all ways of exchange train the same model.

Every way has a model and an optimizer of its own, with the same initial weights and batches. Ways
take turns of a few steps (A B C, A B C, ...), until each has reached the loss. What counts is the
time of the steps; between turns the loss on examples for testing is computed, off the clock.

Letters in shapes: N examples, C channels, H and W pixels.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from step_ddp import DDP_WAYS, join_process_group, leave_process_group, wrap
from step_rank import await_all
from step_ways import NO_EXCHANGE, WAYS, make_optimizer
from torch import Tensor, nn
from torch.nn import functional

import horovod_sylvie as hvs

sys.path.append(str(Path(__file__).parents[1]))

from examples.dense_data import Dataset, read_dataset  # their place is known only now
from examples.dense_models import make_model

TRAINING_WAYS: Final = tuple(way for way in WAYS if way != NO_EXCHANGE)
_MOMENTUM: Final = 0.9


@dataclass(frozen=True)
class Training:
    """What is trained, and how.

    Attributes:
        width: Hidden units of the perceptron's two layers.
        batch_size: Examples of a rank's batch.
        lr: Learning rate of SGD with momentum; it does not change.
        loss: Mean cross-entropy on the test examples that ends a way's training.
        max_steps: Where a way's training ends without it.
        turn_steps: Steps between two looks at that loss.
    """

    width: int = 1024
    batch_size: int = 32
    lr: float = 0.02
    loss: float = 0.2
    max_steps: int = 1000
    turn_steps: int = 10


@dataclass
class Trainee:
    """One way's model.

    Attributes:
        way: Its name.
        model: Holds the parameters.
        module: What is called: the model, or what wraps it.
        optimizer: Exchanges, and steps.
        batches: This rank's, without end.
        seconds: Of its steps up to each look at the loss; the first is 0.
        losses: On the test examples, then.
    """

    way: str
    model: nn.Module
    module: nn.Module
    optimizer: Any
    batches: Iterator[tuple[Tensor, Tensor]]
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def train(self, num_steps: int) -> None:
        """Take steps."""
        for _ in range(num_steps):
            inputs, classes = next(self.batches)
            self.optimizer.zero_grad()
            functional.cross_entropy(self.module(inputs), classes).backward()
            self.optimizer.step()


def make_trainee(way: str, data: Dataset, training: Training, comm: hvs.Communicator) -> Trainee:
    """Make one way's model and optimizer. Collective.

    Args:
        way: One of `TRAINING_WAYS`.
        data: The same on every rank.
        training: How.
        comm: Of all ranks; DDP's process group is there.
    """
    torch.manual_seed(0)
    model = make_model("mlp", tuple(data.x_train.shape[1:]), data.num_classes, training.width)
    plain = torch.optim.SGD(model.parameters(), lr=training.lr, momentum=_MOMENTUM)
    module = wrap(way, model) if way in DDP_WAYS else model
    optimizer = make_optimizer(way, model, comm, plain)
    batches = endless(data, training.batch_size, comm)
    return Trainee(way, model, module, optimizer, batches)


def endless(
    data: Dataset, batch_size: int, comm: hvs.Communicator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a rank's batches, epoch after epoch."""
    epoch = 0
    while True:
        yield from data.train_batches(batch_size, epoch, seed=0, rank=comm.rank, size=comm.size)
        epoch += 1


def test_loss(model: nn.Module, data: Dataset, comm: hvs.Communicator) -> float:
    """Return the mean loss on the test examples, which ranks share out. Collective."""
    total = torch.zeros(2, dtype=torch.float64)
    with torch.no_grad():
        for inputs, classes in data.test_batches(256, rank=comm.rank, size=comm.size):
            loss = functional.cross_entropy(model(inputs), classes, reduction="sum")
            total += torch.tensor([float(loss), float(len(classes))], dtype=torch.float64)
    loss_sum, count = comm.allreduce(total, name="time_to_loss.loss").wait().tolist()
    return float(loss_sum / count)


def look(trainee: Trainee, data: Dataset, comm: hvs.Communicator, seconds: float) -> float:
    """Note the loss of a way, and how long its steps took until now. Collective."""
    trainee.losses.append(test_loss(trainee.model, data, comm))
    trainee.seconds.append((trainee.seconds[-1] if trainee.seconds else 0.0) + seconds)
    return trainee.losses[-1]


def run_job(
    ways: Sequence[str], data: Dataset, training: Training, comm: hvs.Communicator
) -> dict[str, Any]:
    """Train in every way.

    Args:
        ways: Some of `TRAINING_WAYS`.
        data: The same on every rank.
        training: How.
        comm: Of all ranks. Collective.

    Returns:
        What rank 0 saw, by way: the loss and the seconds up to it at each look, and the seconds and
        steps to the wanted one; None where it was not reached.
    """
    if any(way in DDP_WAYS for way in ways):
        join_process_group(comm)
    trainees = [make_trainee(way, data, training, comm) for way in ways]
    unfinished = [each for each in trainees if look(each, data, comm, 0.0) > training.loss]
    for _ in range(0, training.max_steps, training.turn_steps):
        for trainee in list(unfinished):
            await_all(comm)
            started_s = time.perf_counter()
            trainee.train(training.turn_steps)
            await_all(comm)  # the time of the slowest rank
            elapsed_s = time.perf_counter() - started_s
            if look(trainee, data, comm, elapsed_s) <= training.loss:
                unfinished.remove(trainee)
    return {
        "num_parameters": sum(each.numel() for each in trainees[0].model.parameters()),
        "ways": {each.way: figures_of(each, training) for each in trainees},
    }


def figures_of(trainee: Trainee, training: Training) -> dict[str, Any]:
    """Return what is kept of one way."""
    reached = trainee.losses[-1] <= training.loss
    return {
        "time_s": trainee.seconds[-1] if reached else None,
        "num_steps": training.turn_steps * (len(trainee.losses) - 1) if reached else None,
        "seconds": [round(each, 3) for each in trainee.seconds],
        "losses": [round(each, 4) for each in trainee.losses],
    }


def main() -> None:
    """Be a rank of a job; rank 0 writes the report."""
    import horovod.torch as hvd

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="as of examples/dense.py")
    parser.add_argument("--ways", default=",".join(TRAINING_WAYS))
    parser.add_argument("--training", required=True, help="JSON: fields of Training")
    parser.add_argument("--report", type=Path, required=True, help="where rank 0 writes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    comm = hvs.HorovodCommunicator()
    data = read_dataset(args.data, chunk=1, as_text=False)
    training = Training(**json.loads(args.training))
    report = run_job(args.ways.split(","), data, training, comm)
    if comm.rank == 0:
        args.report.write_text(json.dumps(report))
    leave_process_group(comm)
    hvd.shutdown()


if __name__ == "__main__":
    main()
