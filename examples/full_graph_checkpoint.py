"""Checkpoints of `full_graph.py`: a folder per epoch, a file per rank.

The folder gets its name when all ranks have written their files, so a checkpoint is whole or is
not there. It lies on a disk that every rank sees, as the partition does.

On as many ranks, training goes on as if it had never stopped. On another number, after
partitioning again, model and optimizer do; residuals of top-k start at zero, and halo rows, which
belonged to the old partition, are exchanged anew.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from full_graph_report import History
from torch import nn

import horovod_sylvie as hvs


def newest_checkpoint(directory: Path) -> Path | None:
    """Return the folder of the newest checkpoint; None where there is none."""
    return max(directory.glob("epoch-*"), default=None)  # numbers have leading zeros


def epoch_of(folder: Path) -> int:
    """Return how many epochs had ended when a checkpoint was made."""
    return int(folder.name.removeprefix("epoch-"))


def save_checkpoint(
    directory: Path,
    comm: hvs.Communicator,
    model: nn.Module,
    optimizer: Any,
    history: History,
) -> None:
    """Write a checkpoint, then remove older ones. Collective."""
    folder = directory / f"epoch-{len(history.loss):06d}"
    partial = directory / f".{folder.name}.partial"
    state = {
        "ranks": comm.size,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),  # and of the halo exchange
        "generator": torch.get_rng_state(),
        "history": history.to_dict(),
    }
    with hvs.together(comm, "beginning a checkpoint"):
        if comm.rank == 0:
            for unfinished in directory.glob(".epoch-*.partial"):  # of a job that was stopped
                shutil.rmtree(unfinished)
            partial.mkdir(parents=True)
    with hvs.together(comm, "writing a checkpoint"):
        torch.save(state, partial / f"rank-{comm.rank}.pt")
    with hvs.together(comm, "completing a checkpoint"):
        if comm.rank == 0:
            partial.replace(folder)
            for older in directory.glob("epoch-*"):
                if older != folder:
                    shutil.rmtree(older)


def load_checkpoint(
    folder: Path, comm: hvs.Communicator, model: nn.Module, optimizer: Any
) -> History:
    """Take over a checkpoint, and return what was noted of its epochs. Collective."""
    own = folder / f"rank-{comm.rank}.pt"
    with hvs.together(comm, "reading the checkpoint"):
        file = own if own.exists() else folder / "rank-0.pt"
        state = torch.load(file, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    if own.exists() and state["ranks"] == comm.size:
        torch.set_rng_state(state["generator"])
    else:  # nor should a rank drop out as in its first epochs
        torch.manual_seed(torch.initial_seed() + epoch_of(folder))
    return History.from_dict(state["history"])
