"""One rank misbehaves while gradients are exchanged; what do the others say, and do they end?

Run by test_optimizer_faults.py and test_link_cut.py: optimizer_faults.py LOCK FAULT. Rank 1 is
faulty. A rank that ends with an error prints it in one line and leaves at once, as a script should.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from tests.programs import optimizer_training as training
from tests.programs.faulty_training import cut_the_link, go_on_in_a_child

FAULTY, STEP = 1, 3
KILLED = ("killed in backward", "killed between steps")


def die(_: Tensor) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def misbehave(fault: str, model: nn.Module) -> None:
    """Do what the fault says at the start of a step, on the faulty rank."""
    if fault == "killed between steps":
        if hvd.rank() == FAULTY:
            die(torch.empty(0))
        time.sleep(3)  # Horovod has noticed when this rank's hooks submit the next gradient
    if hvd.rank() != FAULTY:
        return
    if fault == "killed in backward":
        # The first layer is the last in backward: the exchange of the others has begun
        model[0].weight.register_hook(die)
    if fault == "raises":
        raise ZeroDivisionError("one rank divides by zero")
    if fault == "stalls":
        threading.Event().wait()
    if fault == "link is cut":
        cut_the_link()
    if fault == "nan":
        model[0].weight.register_hook(lambda gradient: gradient * math.nan)


def options_for(fault: str) -> dict[str, Any]:
    """Return the optimizer's options on this rank."""
    odd = hvd.rank() == FAULTY
    density = 0.2 if fault == "density" and odd else 0.1
    return {"compression": training.top_k(density)}


def main() -> None:
    lock, fault = Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    alive = go_on_in_a_child(lock) if fault in KILLED else None
    hvd.init()
    model = training.make_model()
    optimizer = hvs.DistributedOptimizer(
        training.sgd(model), model.named_parameters(), **options_for(fault)
    )
    for step in range(6):
        if step == STEP:
            misbehave(fault, model)
        if step == STEP and fault == "joins" and hvd.rank() == FAULTY:
            hvd.join()
        optimizer.zero_grad()
        training.loss_of(model, step, hvd.rank()).backward()
        optimizer.step()
    print(f"rank {hvd.rank()} trained to the end", flush=True)
    if alive is not None:
        alive.close()


if __name__ == "__main__":
    try:
        main()
    except (Exception, KeyboardInterrupt) as error:
        text = str(error).replace("\n", " ")
        print(f"rank {hvd.rank()} says: {type(error).__name__}: {text}", flush=True)
        os._exit(1)
