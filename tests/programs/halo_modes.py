"""Old rows, adaptive bits and the one door on real ranks. Usage: halo_modes.py FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch

import horovod_sylvie as hvs
from horovod_sylvie.comm.checked import CheckedCommunicator
from horovod_sylvie.comm.delayed import DelayedCommunicator
from tests.halo.door_training import GRAPH, MODES, Training

NUM_EPOCHS, STOPPED_AT = 6, 3
TOP_K = hvs.Compression.topk(density=0.2, min_elements=16)


def run(
    comm: hvs.Communicator,
    part: hvs.Partition,
    mode: str,
    *,
    compression: Any,
    seed: int | None = None,
) -> tuple[list[float], list[float], torch.Tensor]:
    """Train, and train again from a checkpoint on the way; return losses and parameters."""
    inner = comm if seed is None else DelayedCommunicator(comm, seed=seed, longest_s=0.02)
    with CheckedCommunicator(inner) as checked:
        training = Training(checked, part, compression=compression, **MODES[mode])
        losses = training.epochs(STOPPED_AT)
        state = training.state()
        losses += training.epochs(NUM_EPOCHS - STOPPED_AT)
        training.halo.drain()
        resumed = Training(checked, part, compression=compression, **MODES[mode])
        resumed.load(state)
        late = resumed.epochs(NUM_EPOCHS - STOPPED_AT)
        resumed.halo.drain()
    assert torch.equal(training.parameters(), resumed.parameters()), mode
    return losses, late, training.parameters()


def main() -> None:
    """Check every mode, and say so once per rank."""
    folder = Path(sys.argv[1])
    hvd.init()
    torch.set_num_threads(1)
    comm = hvs.HorovodCommunicator(timeout_s=60)
    with hvs.together(comm, "partitioning"):
        if comm.rank == 0:
            hvs.partition_graph(GRAPH, folder / "parts", comm.size)
    part = hvs.load_partition(folder / "parts", comm.rank, comm.size)
    num_passed = 0
    for number, mode in enumerate(MODES):
        compression = TOP_K if number % 2 else hvs.Compression.none
        losses, late, parameters = run(comm, part, mode, compression=compression)
        assert losses[STOPPED_AT:] == late, mode  # resumed equals never stopped, to the bit
        again = run(comm, part, mode, compression=compression, seed=11)
        assert (losses, late) == again[:2], mode  # two runs are equal, whatever the delays
        gathered = comm.allgather(parameters, name="parameters").wait()
        assert all(torch.equal(each, parameters) for each in gathered.chunk(comm.size)), mode
        num_passed += 1
    print(f"all {num_passed} modes passed", flush=True)


if __name__ == "__main__":
    main()
