"""A small training of the full-graph example on threads, with its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from full_graph_checkpoint import load_checkpoint, newest_checkpoint, save_checkpoint
from full_graph_report import History
from torch import Tensor, nn

import horovod_sylvie as hvs

NUM_RANKS = 2


def make_training(comm: hvs.Communicator) -> tuple[nn.Module, Any]:
    """Return a model, which the seed makes, and its optimizer."""
    torch.manual_seed(comm.rank)
    model = nn.Linear(12, 8)
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    compression = hvs.Compression.topk(0.1, min_elements=0)
    return model, hvs.DistributedOptimizer(
        plain, model.named_parameters(), compression=compression, comm=comm
    )


def save(directory: Path, epochs: int = 3) -> list[dict[str, Any]]:
    """Train for some steps, save, and return what each rank has."""

    def on_rank(comm: hvs.LoopbackCommunicator) -> dict[str, Any]:
        model, optimizer = make_training(comm)
        for epoch in range(epochs):
            optimizer.zero_grad()
            model(torch.full((4, 12), float(epoch + comm.rank))).square().sum().backward()
            optimizer.step()
        history = History(loss=[float(epoch) for epoch in range(epochs)])
        save_checkpoint(directory, comm, model, optimizer, history)
        return state_of(model, optimizer, history)

    return list(hvs.run_loopback(NUM_RANKS, on_rank))


def load(directory: Path, num_ranks: int = NUM_RANKS) -> list[dict[str, Any]]:
    """Load the newest checkpoint, and return what each rank has then."""

    def on_rank(comm: hvs.LoopbackCommunicator) -> dict[str, Any]:
        model, optimizer = make_training(comm)
        folder = newest_checkpoint(directory)
        assert folder is not None
        return state_of(model, optimizer, load_checkpoint(folder, comm, model, optimizer))

    return list(hvs.run_loopback(num_ranks, on_rank))


def state_of(model: nn.Module, optimizer: Any, history: History) -> dict[str, Any]:
    """Return everything that a checkpoint keeps of a rank, but for torch's generator."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "history": history.to_dict(),
    }
    copied: dict[str, Any] = copy_of(state)
    return copied


def copy_of(value: Any) -> Any:
    """Return a value with tensors of its own."""
    if isinstance(value, dict):
        return {key: copy_of(each) for key, each in value.items()}
    if isinstance(value, list):
        return [copy_of(each) for each in value]
    return value.clone() if isinstance(value, Tensor) else value


def are_equal(first: Any, second: Any) -> bool:
    """Return whether two values are the same, to the last bit of each tensor."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(are_equal(first[k], second[k]) for k in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(are_equal, first, second))
    if isinstance(first, Tensor):
        same_kind = (first.shape, first.dtype) == (second.shape, second.dtype)
        return same_kind and first.numpy().tobytes() == second.numpy().tobytes()  # NaNs, too
    return bool(first == second)
