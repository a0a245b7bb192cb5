"""Models that torch.compile has compiled, on real ranks. Usage: compiled_models.py FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

import horovod.torch as hvd
import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

import horovod_sylvie as hvs

NUM_STEPS = 4
GRAPH = "synthetic:nodes=300,degree=6,features=12,classes=3"


class SAGE(nn.Module):
    """Two layers, the second of which exchanges halo rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(12, 16), SAGEConv(16, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden: Tensor = self.first(x, edge_index).relu()
        scores: Tensor = self.second(hidden, edge_index)
        return scores


def train_perceptron(comm: hvs.Communicator, *, compiles: bool) -> list[Tensor]:
    """Train with selected gradients; return the parameters."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
    optimizer = hvs.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        model.named_parameters(),
        compression=hvs.Compression.topk(density=0.1, min_elements=16),
        comm=comm,
    )
    called = torch.compile(model) if compiles else model
    generator = torch.Generator().manual_seed(comm.rank)
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        called(torch.randn(16, 32, generator=generator)).square().mean().backward()
        optimizer.step()
    return [each.detach() for each in model.parameters()]


def train_graph(comm: hvs.Communicator, part: hvs.Partition, *, compiles: bool) -> list[Tensor]:
    """Train on the whole graph, with rows in full precision; return the parameters."""
    torch.manual_seed(0)
    halo = hvs.HaloExchange(part, hvs.FullPrecision(), comm=comm)
    model = hvs.convert_model(SAGE(), halo)
    optimizer = hvs.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        model.named_parameters(),
        op=hvd.Sum,
        halo=halo,
    )
    called = torch.compile(model) if compiles else model
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        hvs.loss_share(called(part.x, part.edge_index), part).backward()
        optimizer.step()
    halo.drain()
    return [each.detach() for each in model.parameters()]


def main() -> None:
    """Compare compiled training with eager, and say so once per rank."""
    folder = Path(sys.argv[1])
    hvd.init()
    torch.set_num_threads(1)
    comm = hvs.HorovodCommunicator(timeout_s=200)
    with hvs.together(comm, "partitioning"):
        if comm.rank == 0:
            hvs.partition_graph(GRAPH, folder / "parts", comm.size)
    part = hvs.load_partition(folder / "parts", comm.rank, comm.size)
    eager = [*train_perceptron(comm, compiles=False), *train_graph(comm, part, compiles=False)]
    compiled = [*train_perceptron(comm, compiles=True), *train_graph(comm, part, compiles=True)]
    for expected, found in zip(eager, compiled, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    print("compiled is as eager", flush=True)


if __name__ == "__main__":
    main()
