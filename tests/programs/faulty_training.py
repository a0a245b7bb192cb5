"""One rank misbehaves in training; what do the others say, and do they end?

Run by test_faults.py and test_link_cut.py: faulty_training.py DIRECTORY FAULT. Rank 1 is faulty.
A rank that ends with an error prints it in one line and then leaves at once, as a script should.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TextIO

import horovod.torch as hvd
import torch

from horovod_sylvie.comm.agreement import together
from horovod_sylvie.comm.horovod import HorovodCommunicator
from horovod_sylvie.halo.codec import FullPrecision
from horovod_sylvie.halo.convert import convert_model
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.halo.objective import loss_share
from horovod_sylvie.halo.packed_codec import OneBit
from horovod_sylvie.partition.loader import load_partition
from tests import reference_training as reference

FAULTY, EPOCH = 1, 3
LAST_WORDS_S = 30


def go_on_in_a_child(lock_path: Path) -> TextIO:
    """Return in a child process; the parent ends when the children of all ranks have ended.

    horovodrun kills every rank as soon as one has ended, often before it has said what it saw. A
    child holds a shared lock for as long as it lives, so a parent that gets the exclusive one
    knows that all are gone: no child is past hvd.init before each holds its own.
    """
    child = os.fork()
    lock = lock_path.open("w")  # after the fork: a lock belongs to who opened the file
    if child == 0:
        fcntl.flock(lock, fcntl.LOCK_SH)
        return lock
    _, status = os.waitpid(child, 0)
    signal.alarm(LAST_WORDS_S)  # ends this process, whatever the others do
    fcntl.flock(lock, fcntl.LOCK_EX)
    code = os.waitstatus_to_exitcode(status)
    print(f"rank {os.environ['HOROVOD_RANK']} ended with {code}", flush=True)
    os._exit(code if code >= 0 else 128 - code)


def cut_the_link() -> None:
    """Let no packet leave or reach this host any more, which must be an emulated one."""
    if "HVS_EMULATED_HOST" not in os.environ:
        raise RuntimeError("this machine's own link is not to be cut: run test_link_cut.py")
    subprocess.run(["ip", "link", "set", "eth0", "down"], check=True)


def misbehave(fault: str, epoch: int, model: torch.nn.Module) -> None:
    """Do what the fault says, on the faulty rank unless it is said otherwise."""
    if epoch != EPOCH:
        return
    if fault == "interrupted" and hvd.rank() != FAULTY:
        # Ctrl-C, a moment after this rank has begun to wait for the one that stalls
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    if hvd.rank() != FAULTY:
        return
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "raises":
        raise ZeroDivisionError("one rank divides by zero")
    if fault in ("stalls", "interrupted"):
        threading.Event().wait()
    if fault == "link is cut":
        cut_the_link()
    if fault == "nan":
        for parameter in model.parameters():
            parameter.data.fill_(torch.nan)


def main() -> None:
    directory, fault = Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    alive = go_on_in_a_child(directory.parent / "alive") if fault == "killed" else None
    hvd.init()
    comm = HorovodCommunicator()
    with together(comm, "loading the partition"):
        part = load_partition(directory, comm.rank, comm.size)
    odd = hvd.rank() == FAULTY
    codec = FullPrecision() if fault == "codec" and odd else OneBit()
    halo = HaloExchange(part, codec, comm=comm)
    model = reference.Network("gin" if fault == "model" and odd else "sage", batch_norm=False)
    convert_model(model, halo)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01),
        named_parameters=model.named_parameters(),
        op=hvd.Sum,
    )
    for epoch in range(6):
        optimizer.zero_grad()
        misbehave(fault, epoch, model)
        loss_share(model(part.x, part.edge_index), part).backward()
        optimizer.step()
    print(f"rank {hvd.rank()} trained to the end", flush=True)
    if alive is not None:
        alive.close()


if __name__ == "__main__":
    try:
        main()
    except (Exception, KeyboardInterrupt) as error:
        print(f"rank {hvd.rank()} says: {type(error).__name__}: {error}", flush=True)
        os._exit(1)
