"""The models of `full_graph.py`: plain PyTorch Geometric, which knows nothing of ranks.

Dropout comes after the first convolution, so the features' halo rows are fetched once.
"""

from __future__ import annotations

from argparse import Namespace

from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GATConv, GCNConv, GINConv, JumpingKnowledge, SAGEConv

# How many layers each has, where nothing else is asked for
LAYERS = (("sage", 2), ("gcn", 2), ("gat", 2), ("gin", 2), ("jknet", 8))


class GNN(nn.Module):
    """A stack of convolutions with normalisation, ReLU and dropout between them."""

    def __init__(self, args: Namespace, num_features: int, num_classes: int) -> None:
        super().__init__()
        widths = [num_features] + [args.hidden] * (args.layers - 1) + [num_classes]
        self.convs = nn.ModuleList(
            make_convolution(args, args.model, widths[i], widths[i + 1], last=i == args.layers - 1)
            for i in range(args.layers)
        )
        self.norms = nn.ModuleList(make_norm(args, width) for width in widths[1:-1])
        self.dropout = args.dropout
        self.weighted = args.model == "gcn"

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        """Return class scores. [I, F] to [I, C]."""
        extra = (edge_weight,) if self.weighted else ()
        for conv, norm in zip(self.convs, self.norms, strict=False):
            x = functional.relu(norm(conv(x, edge_index, *extra)))
            x = functional.dropout(x, self.dropout, self.training)
        return self.convs[-1](x, edge_index, *extra)


class JumpingKnowledgeNet(nn.Module):
    """Convolutions whose outputs all reach the last, linear layer: deep, and not over-smoothed.

    Source: Xu et al., "Representation Learning on Graphs with Jumping Knowledge Networks" (ICML
    2018).
    """

    def __init__(self, args: Namespace, num_features: int, num_classes: int) -> None:
        super().__init__()
        widths = [num_features] + [args.hidden] * args.layers
        self.convs = nn.ModuleList(
            make_convolution(args, args.jk_conv, widths[i], widths[i + 1], last=False)
            for i in range(args.layers)
        )
        self.norms = nn.ModuleList(make_norm(args, args.hidden) for _ in self.convs)
        self.jump = JumpingKnowledge(args.jk_mode)
        width = args.hidden * (args.layers if args.jk_mode == "cat" else 1)
        self.scores = nn.Linear(width, num_classes)
        self.dropout = args.dropout
        self.weighted = args.jk_conv == "gcn"

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        """Return class scores. [I, F] to [I, C]."""
        extra = (edge_weight,) if self.weighted else ()
        outputs = []
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = functional.relu(norm(conv(x, edge_index, *extra)))
            x = functional.dropout(x, self.dropout, self.training)
            outputs.append(x)
        return self.scores(self.jump(outputs))


def make_model(args: Namespace, num_features: int, num_classes: int) -> nn.Module:
    """Make the model that is asked for, with weights by torch's generator."""
    kind = JumpingKnowledgeNet if args.model == "jknet" else GNN
    return kind(args, num_features, num_classes)


def make_convolution(
    args: Namespace, kind: str, width_in: int, width_out: int, *, last: bool
) -> nn.Module:
    """Make one layer of a kind."""
    if kind == "sage":
        return SAGEConv(width_in, width_out)
    if kind == "gcn":
        return GCNConv(width_in, width_out)
    if kind == "gat":
        heads = 1 if last else args.heads
        return GATConv(width_in, width_out // heads, heads=heads)
    hidden = nn.Linear(width_in, args.hidden)
    mlp = nn.Sequential(hidden, nn.BatchNorm1d(args.hidden), nn.ReLU())
    return GINConv(mlp.append(nn.Linear(args.hidden, width_out)), train_eps=True)


def make_norm(args: Namespace, width: int) -> nn.Module:
    """Make the normalisation behind a layer."""
    norms = {"none": nn.Identity, "layer": nn.LayerNorm, "batch": nn.BatchNorm1d}
    return norms[args.norm](width)
