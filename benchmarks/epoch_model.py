"""The graph networks of `epoch.py`, on one rank's partition."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv, SAGEConv

import horovod_sylvie as hvs

MODELS: Final = ("sage", "gcn")


class GNN(nn.Module):
    """A stack of convolutions with ReLU between them.

    Args:
        kind: One of `MODELS`.
        widths: Features, hidden units of each layer, classes.
    """

    def __init__(self, kind: str, widths: tuple[int, ...]) -> None:
        super().__init__()
        make = {"sage": SAGEConv, "gcn": GCNConv}[kind]
        self.convs = nn.ModuleList(make(*pair) for pair in itertools.pairwise(widths))
        self.weighted = kind == "gcn"

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        """Return class scores. [I, F] to [I, C]."""
        edges = (edge_index, edge_weight) if self.weighted else (edge_index,)
        for conv in self.convs[:-1]:
            x = functional.relu(conv(x, *edges))
        scores: Tensor = self.convs[-1](x, *edges)
        return scores


def make_model(
    kind: str, way: str, part: hvs.Partition, halo: hvs.HaloExchange, *, hidden: int, layers: int
) -> tuple[nn.Module, Callable[[], Tensor]]:
    """Make a converted model with fresh weights from torch's global generator. Collective.

    Args:
        kind: One of `MODELS`.
        way: Stands in front of the names of its layers and parameters.
        part: This rank's partition.
        halo: Exchanges its halo rows.
        hidden: Units of a hidden layer.
        layers: Number of convolutions.

    Returns:
        The model, and a function that computes this rank's share of the loss.

    Raises:
        ValueError: If there is no such kind.
    """
    if kind not in MODELS:
        raise ValueError(f"make_model: expected one of {MODELS} for 'kind', got {kind!r}.")
    gnn = GNN(kind, (part.num_features, *[hidden] * (layers - 1), part.num_classes))
    # Ways have names of their own, so that Horovod's cache of responses holds all of them
    model = hvs.convert_model(nn.ModuleDict({way: gnn}), halo)
    model.train()
    return model, lambda: hvs.loss_share(gnn(part.x, part.edge_index, part.edge_weight), part)
