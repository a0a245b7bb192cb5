"""Leave training with exchanges open. Usage: halo_leaves.py FOLDER {end|raise}."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import horovod.torch as hvd
import torch

import horovod_sylvie as hvs
from tests.halo.door_training import GRAPH, Training


def main() -> None:
    """Train with rows of the epoch before, and end or fail in the middle of an epoch."""
    folder, how = Path(sys.argv[1]), sys.argv[2]
    hvd.init()
    torch.set_num_threads(1)
    comm = hvs.HorovodCommunicator(timeout_s=20)
    with hvs.together(comm, "partitioning"):
        if comm.rank == 0:
            hvs.partition_graph(GRAPH, folder / "parts", comm.size)
    part = hvs.load_partition(folder / "parts", comm.rank, comm.size)
    training = Training(comm, part, staleness=hvs.Pipelined(warmup=1))
    training.epochs(4)
    if how == "raise" and comm.rank == 1:
        raise KeyError("a user's mistake")
    if how == "raise":
        training.epochs(2)
    if comm.rank == 2:
        time.sleep(2)  # the others have come to their end by then
    training.loss()  # a forward pass that nothing follows
    print(f"rank {comm.rank} ends", flush=True)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        print(f"rank {os.environ['HOROVOD_RANK']}: {type(error).__name__}: {error}", flush=True)
        os._exit(1)
