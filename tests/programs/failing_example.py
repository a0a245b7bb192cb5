"""The full-graph example, in which a rank is killed or stopped at a chosen moment.

Run by tests/launched/test_failing_example.py: failing_example.py MOMENT LOCK ARGUMENTS, where the
arguments are those of examples/full_graph.py. Rank 0 is the one that partitions; else it is rank 1.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

import full_graph
import full_graph_checkpoint

from horovod_sylvie.partition.writer import PartitionWriter
from tests.programs.faulty_training import go_on_in_a_child

EPOCH = 5  # two behind the first checkpoint, and rows are old
take_step, write_file, write_rank = (
    full_graph.take_step,
    full_graph_checkpoint.write_file,
    PartitionWriter.write_rank,
)


def die(_: Tensor) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def partition_and_die(self: PartitionWriter, *arguments: Any) -> None:
    write_rank(self, *arguments)
    die(torch.empty(0))


class Step:
    """Takes steps as the example does, up to the one in which something happens."""

    def __init__(self, moment: str) -> None:
        self.moment = moment
        self.epoch = 0

    def __call__(self, model: torch.nn.Module, *others: Any) -> Tensor:
        self.epoch += 1
        if self.epoch == EPOCH and self.moment == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.epoch == EPOCH and self.moment == "backward":
            # The first parameter is the last in backward: gradients of the others and halo rows
            # are on their way
            next(iter(model.parameters())).register_hook(die)
        loss: Tensor = take_step(model, *others)
        return loss


class Write:
    """Writes the files of checkpoints, up to the middle of the second."""

    def __init__(self) -> None:
        self.num_files = 0

    def __call__(self, path: Path, raw: bytes) -> str:
        self.num_files += 1
        if self.num_files == 2:
            path.write_bytes(raw[: len(raw) // 2])
            die(torch.empty(0))
        own_hash: str = write_file(path, raw)
        return own_hash


def prepare(moment: str, rank: int) -> None:
    """Let the moment come, on this rank."""
    if moment == "partitioning" and rank == 0:
        PartitionWriter.write_rank = partition_and_die  # type: ignore[method-assign]
    if moment == "checkpoint" and rank == 1:
        full_graph_checkpoint.write_file = Write()
    if moment in ("backward", "stopped") and rank == 1:
        full_graph.take_step = Step(moment)


def main() -> None:
    moment, lock = sys.argv[1], Path(sys.argv[2])
    sys.argv[1:] = sys.argv[3:]
    # A process that is stopped does not end, and its parent would wait for it
    alive = None if moment == "stopped" else go_on_in_a_child(lock)
    rank = int(os.environ["HOROVOD_RANK"])
    print(f"rank {rank} is process {os.getpid()}", flush=True)
    prepare(moment, rank)
    full_graph.main()
    print(f"rank {rank} trained to the end", flush=True)
    if alive is not None:
        alive.close()


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        print(f"rank {os.environ['HOROVOD_RANK']} says: {text}", flush=True)
        os._exit(1)
