"""A few steps of top-k for Horovod's timeline, and when backward ran and what it submitted.

Run by tests/launched/test_optimizer_timeline.py: optimizer_timeline.py RECORD, with
HOROVOD_TIMELINE set. Rank 0 writes RECORD, with times in microseconds since the epoch.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from torch import Tensor, nn

import horovod_sylvie as hvs

# Layers are small enough for hooks to submit them: when a thread does is up to the machine
STEPS, WARMUP_STEPS, WIDTH, LAYERS = 10, 4, 256, 5


def now_us() -> float:
    return time.time_ns() / 1e3


class WatchedCommunicator(hvs.HorovodCommunicator):
    """Remembers when each operation was submitted."""

    def __init__(self) -> None:
        super().__init__()
        self.submitted: list[tuple[str, float]] = []

    def _submit(self, kind: str, tensor: Tensor, name: str, start: Any) -> Any:
        handle = super()._submit(kind, tensor, name, start)
        self.submitted.append((name, now_us()))
        return handle


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
    comm = WatchedCommunicator()
    optimizer = hvs.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01),
        model.named_parameters(),
        # One stage of a warm-up, so that K changes once, at step WARMUP_STEPS
        compression=hvs.Compression.topk(density=0.01, warmup=hvs.Warmup(WARMUP_STEPS, (0.1,))),
        comm=comm,
    )
    backward = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randn(1024, WIDTH)).square().mean()
        begin = now_us()
        loss.backward()
        backward.append((begin, now_us()))
        optimizer.step()
        hvd.broadcast(torch.tensor([step]), root_rank=0, name="never cached")
    if hvd.rank() == 0:
        record = {"backward": backward, "submitted": comm.submitted}
        Path(sys.argv[1]).write_text(json.dumps(record))


if __name__ == "__main__":
    main()
