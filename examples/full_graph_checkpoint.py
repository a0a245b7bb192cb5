"""Checkpoints of `full_graph.py`: a folder per epoch, a file per rank.

The folder gets its name when all ranks have written their files, so a checkpoint is whole or is
not there. It lies on a disk that every rank sees, as the partition does. `torch.load` takes a byte
that has changed for a weight, so `files.json` holds a hash of each file, which is compared first.

On as many ranks, training goes on as if it had never stopped. On another number, after
partitioning again, model and optimizer do; residuals of top-k start at zero, and halo rows, which
belonged to the old partition, are exchanged anew.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import torch
from full_graph_report import History
from torch import nn

import horovod_sylvie as hvs

HASHES = "files.json"


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
        written = io.BytesIO()
        torch.save(state, written)
        own = write_file(partial / file_name(comm.rank), written.getvalue())
    hashes = hvs.gather_bytes(comm, own.encode(), name="checkpoint")
    with hvs.together(comm, "completing a checkpoint"):
        if comm.rank == 0:
            by_name = {file_name(rank): value.decode() for rank, value in enumerate(hashes)}
            write_file(partial / HASHES, json.dumps(by_name, indent=1).encode())
            partial.replace(folder)
            for older in directory.glob("epoch-*"):
                if older != folder:
                    shutil.rmtree(older)


def load_checkpoint(
    folder: Path, comm: hvs.Communicator, model: nn.Module, optimizer: Any
) -> History:
    """Take over a checkpoint, and return what was noted of its epochs. Collective."""
    with hvs.together(comm, "reading the checkpoint"):
        hashes = read_hashes(folder)
        name = file_name(comm.rank if comm.rank < len(hashes) else 0)
        state = read_state(folder / name, hashes[name])
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    if comm.size == len(hashes):
        torch.set_rng_state(state["generator"])
    else:  # nor should a rank drop out as in its first epochs
        torch.manual_seed(torch.initial_seed() + epoch_of(folder))
    return History.from_dict(state["history"])


def file_name(rank: int) -> str:
    """Return the name of a rank's file."""
    return f"rank-{rank}.pt"


def hash_of(raw: bytes) -> str:
    """Return what tells bytes from others. Hex."""
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


def write_file(path: Path, raw: bytes) -> str:
    """Write a file that outlives a crash of the machine, and return its hash."""
    try:
        with path.open("wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:  # that of a write does not say where
        raise OSError(f"save_checkpoint: cannot write {path}: {error.strerror}.") from error
    return hash_of(raw)


def read_hashes(folder: Path) -> dict[str, str]:
    """Return the hash of each rank's file, by name."""
    path = folder / HASHES
    try:
        hashes = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, OSError) as error:
        raise damaged(path, f"it cannot be read ({error})") from error
    if set(hashes) != {file_name(rank) for rank in range(max(1, len(hashes)))}:
        raise damaged(path, "it does not list a file for each rank")
    return hashes


def read_state(path: Path, expected_hash: str) -> dict[str, Any]:
    """Return what a rank saved, unless a byte has changed since."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise damaged(path, f"it cannot be read ({error.strerror})") from error
    if hash_of(raw) != expected_hash:
        raise damaged(path, f"it is not what {HASHES} has the hash of")
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(raw), weights_only=True)
    except pickle.UnpicklingError as error:  # whoever wrote it wrote its hash, too
        raise damaged(path, "it holds more than tensors, numbers and texts") from error
    return state


def damaged(path: Path, why: str) -> RuntimeError:
    """Return the error for a file that is not as it was saved."""
    return RuntimeError(
        f"load_checkpoint: expected {path.parent} as it was saved, but {path.name}: {why}. "
        "Copy it again from where it is whole, or begin in another --checkpoint directory."
    )
