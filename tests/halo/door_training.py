"""One rank's training with both kinds of traffic, as a user writes it, and the modes to try."""

from __future__ import annotations

import copy
from typing import Any

import torch

import horovod_sylvie as hvs
from tests import reference_training as reference

GRAPH = reference.make_graph()
with torch.random.fork_rng():
    torch.manual_seed(1)
    MODEL = reference.Network("sage", batch_norm=False)
MODES: dict[str, dict[str, Any]] = {
    "full": {"codec": hvs.FullPrecision()},
    "one bit": {},
    "pipelined": {"staleness": hvs.Pipelined(warmup=2)},
    "pipelined every 3rd": {"staleness": hvs.Pipelined(sync_every=3, warmup=1)},
    "zeros": {"staleness": hvs.Pipelined(start="zeros")},
    "bounded": {"staleness": hvs.BoundedStaleness(max_drift=0.4, warmup=1)},
    "delta": {
        "codec": hvs.Delta(hvs.OneBit("centroid"), refresh_every=4),
        "staleness": hvs.Pipelined(warmup=1),
    },
    "budget": {
        "bits": hvs.BudgetBits(60_000, every=3),
        "staleness": hvs.BoundedStaleness(max_drift=0.4, warmup=1),
    },
    "degree": {"bits": hvs.DegreeBits(), "staleness": hvs.Pipelined(warmup=3)},
    "adaptive degree": {"bits": hvs.DegreeBits(adapt=True)},
}


class Training:
    """One rank's training, as a user writes it; only the automatic choice depends on time."""

    def __init__(
        self,
        comm: hvs.Communicator,
        part: hvs.Partition,
        *,
        compression: Any = hvs.Compression.none,
        door: bool = True,
        **options: Any,
    ) -> None:
        self.part = part
        model = copy.deepcopy(MODEL)
        options = {"codec": hvs.OneBit()} | options
        self.halo = hvs.HaloExchange(part, comm=comm, seed=5, **options)
        self.model = hvs.convert_model(model, self.halo)
        if not door:
            return
        self.optimizer = hvs.DistributedOptimizer(
            torch.optim.Adam(self.model.parameters(), lr=0.01),
            named_parameters=self.model.named_parameters(),
            op="Sum",
            compression=compression,
            halo=self.halo,
        )

    def loss(self) -> torch.Tensor:
        logits = self.model(self.part.x, self.part.edge_index, self.part.edge_weight)
        loss = hvs.loss_share(logits, self.part)
        self.halo.record_loss(loss)
        return loss

    def epochs(self, number: int) -> list[float]:
        losses = []
        for _ in range(number):
            self.optimizer.zero_grad()
            loss = self.loss()
            loss.backward()
            self.optimizer.step()
            losses.append(float(loss.detach()))
        return losses

    def parameters(self) -> torch.Tensor:
        return torch.cat([each.detach().flatten() for each in self.model.parameters()])

    def state(self) -> dict[str, Any]:
        return copy.deepcopy(
            {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        )

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
