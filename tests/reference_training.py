"""The same training twice: by one plain PyG process, and by P ranks on a partition.

Shared by the loopback tests (threads) and the programs that run under horovodrun (processes).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric import nn as pyg_nn

from horovod_sylvie.comm.protocol import Communicator
from horovod_sylvie.halo.codec import Codec, FullPrecision
from horovod_sylvie.halo.convert import convert_model
from horovod_sylvie.halo.exchange import HaloExchange
from horovod_sylvie.halo.objective import loss_share
from horovod_sylvie.partition.graph import Graph
from horovod_sylvie.partition.loader import load_partition
from horovod_sylvie.partition.local_partition import Partition

NUM_FEATURES, NUM_CLASSES, HIDDEN = 12, 5, 16
_LOADING = threading.Lock()


def load_in_turn(directory: Path, comm: Communicator) -> Partition:
    """Load a rank's partition; ranks that are threads do so one after the other.

    NumPy parses headers with `ast`, which in CPython 3.11 can fail in several threads at once.
    """
    with _LOADING:
        return load_partition(directory, comm.rank, comm.size)


def make_graph(
    *, num_nodes: int = 120, directed: bool = False, weighted: bool = False, seed: int = 0
) -> Graph:
    """Make a random graph with self-loops, duplicate edges and isolated nodes."""
    rng = np.random.default_rng(seed)
    num_edges = 4 * num_nodes
    edges = rng.integers(0, num_nodes - 5, (2, num_edges))  # the last five nodes are isolated
    edges[:, :6] = edges[:, 6:12]  # duplicates
    edges[1, 20:26] = edges[0, 20:26]  # self-loops
    split = rng.integers(0, 3, num_nodes)
    return Graph(
        num_nodes=num_nodes,
        edge_index=edges,
        x=rng.standard_normal((num_nodes, NUM_FEATURES)).astype(np.float32),
        y=rng.integers(0, NUM_CLASSES, num_nodes),
        train_mask=split == 0,
        val_mask=split == 1,
        test_mask=split == 2,
        edge_weight=rng.uniform(0.2, 2.0, num_edges).astype(np.float32) if weighted else None,
        mirror=not directed,
    )


class Network(nn.Module):
    """Three convolutions, optionally with BatchNorm between, as a user would write them."""

    def __init__(self, kind: str, *, batch_norm: bool) -> None:
        super().__init__()
        widths = [NUM_FEATURES, HIDDEN, HIDDEN, NUM_CLASSES]
        self.weighted = kind in ("gcn", "graph")
        self.convs = nn.ModuleList(
            make_convolution(kind, widths[i], widths[i + 1]) for i in range(3)
        )
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(HIDDEN) if batch_norm else nn.Identity() for _ in range(2)
        )

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        extra = (edge_weight,) if self.weighted else ()
        for conv, norm in zip(self.convs, self.norms, strict=False):
            x = functional.elu(norm(conv(x, edge_index, *extra)))
        return self.convs[-1](x, edge_index, *extra)


def make_convolution(kind: str, width_in: int, width_out: int) -> nn.Module:
    """Make one convolution of a kind."""
    if kind == "sage":
        return pyg_nn.SAGEConv(width_in, width_out)
    if kind == "gcn":
        return pyg_nn.GCNConv(width_in, width_out)
    if kind == "graph":
        return pyg_nn.GraphConv(width_in, width_out, aggr="mean")
    if kind == "gat":
        return pyg_nn.GATConv(width_in, width_out, heads=2, concat=False)
    mlp = nn.Sequential(nn.Linear(width_in, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, width_out))
    return pyg_nn.GINConv(mlp, train_eps=True)


@dataclass
class Result:
    """What a training run leaves."""

    loss: list[float]
    parameters: dict[str, Tensor]
    logits: Tensor


def make_optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """Make an optimizer by name."""
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    return torch.optim.Adam(model.parameters(), lr=0.01)


def train_whole(
    graph: Graph, model: nn.Module, optimizer_name: str, *, num_epochs: int = 20
) -> Result:
    """Train in one process, with PyG and nothing of ours."""
    edges, origin = graph.message_edges()
    edge_index = torch.from_numpy(edges.astype(np.int64))
    x, y = torch.from_numpy(graph.x), torch.from_numpy(graph.y)
    train = torch.from_numpy(graph.train_mask[:, 0])
    extra = ()
    if graph.edge_weight is not None:
        extra = (torch.from_numpy(graph.edge_weight[origin]),)
    optimizer = make_optimizer(optimizer_name, model)
    losses = []
    for _ in range(num_epochs):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x, edge_index, *extra)[train], y[train])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        logits = model(x, edge_index, *extra)
    return Result(losses, dict(model.named_parameters()), logits)


def train_partitioned(
    comm: Communicator,
    directory: Path,
    model: nn.Module,
    optimizer_name: str,
    *,
    codec: Codec | None = None,
    num_epochs: int = 20,
    sum_gradients: Callable[[nn.Module], None] | None = None,
    wrap: Callable[[torch.optim.Optimizer, nn.Module], torch.optim.Optimizer] | None = None,
) -> Result:
    """Train one rank's share; the logits are of all nodes, in global order."""
    part = load_in_turn(directory, comm)
    halo = HaloExchange(part, codec or FullPrecision(), comm=comm)
    convert_model(model, halo)
    optimizer = make_optimizer(optimizer_name, model)
    if wrap is not None:
        optimizer = wrap(optimizer, model)
    extra = () if part.edge_weight is None else (part.edge_weight,)
    losses = []
    for _ in range(num_epochs):
        optimizer.zero_grad()
        share = loss_share(model(part.x, part.edge_index, *extra), part)
        share.backward()
        if sum_gradients is not None:
            sum_gradients(model)
        optimizer.step()
        total = comm.allreduce(share.detach().double().reshape(1), name="test.loss").wait()
        losses.append(total.item())
    model.eval()
    with torch.no_grad():
        logits = model(part.x, part.edge_index, *extra)
    return Result(losses, dict(model.named_parameters()), gather_rows(comm, part, logits))


def gradient_summer(comm: Communicator) -> Callable[[nn.Module], None]:
    """Return what stands in for Horovod's optimizer where there is no Horovod."""

    def sum_gradients(model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            total = comm.allreduce(parameter.grad.contiguous(), name=f"test.grad.{name}").wait()
            parameter.grad.copy_(total)

    return sum_gradients


def gather_rows(comm: Communicator, part: Partition, rows: Tensor) -> Tensor:
    """Return all ranks' inner rows in global order."""
    whole = rows.new_zeros((part.num_nodes_global, rows.shape[1]))
    whole[part.inner_ids] = rows
    return comm.allreduce(whole, name="test.rows").wait()


def assert_equal_results(got: Result, expected: Result, *, relative: float = 1e-5) -> None:
    """Check loss curve, parameters and outputs."""
    torch.testing.assert_close(
        torch.tensor(got.loss), torch.tensor(expected.loss), rtol=relative, atol=0
    )
    assert got.parameters.keys() == expected.parameters.keys()
    for name, parameter in expected.parameters.items():
        torch.testing.assert_close(
            got.parameters[name],
            parameter,
            rtol=1e-4,
            atol=2e-5,
            msg=lambda text, name=name: f"{name}: {text}",
        )
    torch.testing.assert_close(got.logits, expected.logits, rtol=1e-4, atol=1e-4)
