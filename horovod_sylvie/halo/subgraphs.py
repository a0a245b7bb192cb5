"""Edges split by their target: those that need no halo row, and the others.

An inner row is *interior* if all its in-edges come from inner rows, and *marginal* if one comes
from a halo row. The output of a convolution for a row depends on the row, its in-edges and their
sources only, so the interior rows can be computed while the halo rows are on their way, and the
marginal rows when they are here. No row waits for an older value, and none is computed twice.

Source: Wan et al., "Adaptive Message Quantization and Parallelization for Distributed Full-graph
GNN Training" (MLSys 2023), where interior rows are called central.

Shapes: I inner rows, H halo rows, E edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_MIN_SHARE: Final = 0.05  # of rows and of edges; below, a second call costs more than it hides
_MAX_KEPT: Final = 4  # edge lists; a model has few, or new ones for each call


@dataclass(frozen=True)
class Subgraph:
    """All edges into some inner rows, and the rows that they read, numbered anew.

    Attributes:
        targets: The inner rows that are computed, ascending. [T], int64
        nodes: The inner rows that are read: the targets, then other sources. [N], int64
        edges: The edges' numbers, ascending. [E'], int64
        edge_index: The same edges; sources are positions in [nodes; halo rows], targets are
            positions in `targets`. [2, E'], int64
    """

    targets: Tensor
    nodes: Tensor
    edges: Tensor
    edge_index: Tensor


@dataclass(frozen=True)
class SplitGraph:
    """A rank's edges in two parts.

    Attributes:
        interior: The edges into interior rows.
        marginal: The edges into marginal rows.
        order: For each inner row, its position in [interior rows; marginal rows]. [I], int64
    """

    interior: Subgraph
    marginal: Subgraph
    order: Tensor

    def nodes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inner rows that each part reads.

        Args:
            x: Inner rows. [I, F]

        Returns:
            Rows of the interior's nodes [N, F], and of the marginal part's [N', F].
        """
        rows: tuple[Tensor, Tensor] = _Take.apply(  # type: ignore[no-untyped-call]
            x, self, self.interior.nodes, self.marginal.nodes
        )
        return rows

    def targets(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inner rows that each part computes.

        Args:
            x: Inner rows. [I, F]

        Returns:
            Interior rows [T, F], and marginal rows [T', F].
        """
        rows: tuple[Tensor, Tensor] = _Take.apply(  # type: ignore[no-untyped-call]
            x, self, self.interior.targets, self.marginal.targets
        )
        return rows

    def join(self, interior: Tensor, marginal: Tensor) -> Tensor:
        """Put the rows of both parts in the order of the inner rows.

        Args:
            interior: A row for each target of the interior, then any others. [>= T, ...]
            marginal: A row for each target of the marginal part, then any others. [>= T', ...]

        Returns:
            The inner rows. [I, ...]
        """
        rows: Tensor = _Join.apply(interior, marginal, self)  # type: ignore[no-untyped-call]
        return rows

    def in_order(self, interior: Tensor, marginal: Tensor) -> Tensor:
        """Do as `join`, outside of autograd."""
        early, late = len(self.interior.targets), len(self.marginal.targets)
        return torch.cat([interior[:early], marginal[:late]]).index_select(0, self.order)


class _Take(torch.autograd.Function):
    """Rows of both parts, each part's targets first.

    Its own backward, since that of `index_select` adds row by row to zeros, twice, where most rows
    can be copied: every inner row is a target of one part.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, split: SplitGraph, interior: Tensor, marginal: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.split, ctx.rows = split, (interior, marginal)
        return x.index_select(0, interior), x.index_select(0, marginal)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, interior: Tensor, marginal: Tensor) -> tuple[Tensor, None, None, None]:
        split = ctx.split
        gradient = split.in_order(interior, marginal)
        parts = (split.interior, split.marginal)
        for part, rows, given in zip(parts, ctx.rows, (interior, marginal), strict=True):
            num_targets = len(part.targets)
            gradient.index_add_(0, rows[num_targets:], given[num_targets:])
        return gradient, None, None, None


class _Join(torch.autograd.Function):
    """Rows of both parts, in the order of the inner rows."""

    @staticmethod
    def forward(ctx: Any, interior: Tensor, marginal: Tensor, split: SplitGraph) -> Tensor:
        ctx.split, ctx.num_rows = split, (len(interior), len(marginal))
        return split.in_order(interior, marginal)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        early, late = ctx.num_rows
        interior = gradient.index_select(0, ctx.split.interior.targets)
        marginal = gradient.index_select(0, ctx.split.marginal.targets)
        return _lengthened(interior, early), _lengthened(marginal, late), None


def _lengthened(rows: Tensor, num_rows: int) -> Tensor:
    """Append zeros, up to a number of rows."""
    if len(rows) == num_rows:
        return rows
    return torch.cat([rows, rows.new_zeros((num_rows - len(rows), *rows.shape[1:]))])


def split_by_target(edge_index: Tensor, num_inner: int, num_halo: int) -> SplitGraph | None:
    """Split edges into those that need no halo row and the others.

    Args:
        edge_index: Sources in [0, I + H) and targets in [0, I). [2, E], int64
        num_inner: Number of inner rows, I.
        num_halo: Number of halo rows, H.

    Returns:
        Both parts, in which edges keep their order; or None where a split gains nothing, as one
        part has hardly any rows or edges, or where the edges are not of that form.
    """
    if not _is_local(edge_index, num_inner, num_halo):
        return None
    source, target = edge_index
    is_marginal = torch.zeros(num_inner, dtype=torch.bool, device=edge_index.device)
    is_marginal[target[source >= num_inner]] = True
    is_late = is_marginal[target]  # [E]
    shares = [(~is_marginal).double().mean(), (~is_late).double().mean()]
    if not all(_MIN_SHARE <= float(share) < 1.0 for share in shares):
        return None
    interior = _subgraph(edge_index, ~is_late, ~is_marginal, num_inner, 0)
    marginal = _subgraph(edge_index, is_late, is_marginal, num_inner, num_halo)
    order = _positions(torch.cat([interior.targets, marginal.targets]), num_inner)
    return SplitGraph(interior, marginal, order)


def _is_local(edge_index: Tensor, num_inner: int, num_halo: int) -> bool:
    if type(edge_index) is not Tensor or edge_index.dtype != torch.int64:
        return False  # PyG's EdgeIndex has faster ways of its own to aggregate
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.shape[1] == 0:
        return False
    (first_source, first_target), (last_source, last_target) = (
        bounds.tolist() for bounds in torch.aminmax(edge_index, dim=1)
    )
    fits = first_source >= 0 and last_source < num_inner + num_halo
    return bool(fits and first_target >= 0 and last_target < num_inner)


def _subgraph(
    edge_index: Tensor, is_kept: Tensor, is_target: Tensor, num_inner: int, num_halo: int
) -> Subgraph:
    """Take the edges `is_kept` [E], whose targets are among the inner rows `is_target` [I]."""
    edges = is_kept.nonzero().squeeze(1)
    kept = edge_index.index_select(1, edges)
    targets = is_target.nonzero().squeeze(1)
    is_source = torch.zeros(num_inner + num_halo, dtype=torch.bool, device=edge_index.device)
    is_source[kept[0]] = True
    others = (is_source[:num_inner] & ~is_target).nonzero().squeeze(1)
    nodes = torch.cat([targets, others])
    halo = torch.arange(num_inner, num_inner + num_halo, device=edge_index.device)
    position = _positions(torch.cat([nodes, halo]), num_inner + num_halo)
    return Subgraph(targets, nodes, edges, position[kept])


def _positions(rows: Tensor, num_rows: int) -> Tensor:
    """Return where each row stands in `rows`; 0 where it does not. [num_rows], int64."""
    positions = torch.zeros(num_rows, dtype=torch.int64, device=rows.device)
    positions[rows] = torch.arange(len(rows), device=rows.device)
    return positions


@dataclass(frozen=True)
class _Kept:
    """An edge list and its split. Holding the list keeps its storage from being reused."""

    edge_index: Tensor
    version: int
    split: SplitGraph | None

    def is_of(self, edge_index: Tensor) -> bool:
        return (
            self.edge_index.device == edge_index.device
            and self.edge_index.dtype == edge_index.dtype
            and self.edge_index.is_set_to(edge_index)
            and self.version == edge_index._version
        )


class SplitGraphs:
    """The splits of the edge lists that a model was last called with, shared by its layers."""

    def __init__(self, num_inner: int, num_halo: int) -> None:
        """Start with none, for I = `num_inner` and H = `num_halo`."""
        self._num_inner = num_inner
        self._num_halo = num_halo
        self._kept: list[_Kept] = []  # the last used at the end

    def find(self, edge_index: Tensor) -> SplitGraph | None:
        """Return the split of an edge list, made anew where the list is new or was modified.

        Args:
            edge_index: Edges into inner rows. [2, E], int64

        Returns:
            As `split_by_target`.
        """
        if edge_index.is_inference():  # whether such a tensor was modified cannot be known
            return None
        kept = next((one for one in self._kept if one.is_of(edge_index)), None)
        if kept is None:
            with torch.inference_mode(False):  # what is kept must serve in training too
                split = split_by_target(edge_index, self._num_inner, self._num_halo)
            kept = _Kept(edge_index, edge_index._version, split)
        others = [one for one in self._kept if one is not kept]
        self._kept = [*others[-(_MAX_KEPT - 1) :], kept]
        return kept.split
