"""The hooks that make one convolution run on [inner; halo] rows.

Shapes: I inner rows, H halo rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv, GINConv, GINEConv, GraphConv, MessagePassing, SAGEConv

from ..comm.agreement import together
from .exchange import HaloExchange
from .locality import check_locality, is_known
from .refusals import hops_allowed

# These take (source rows, target rows), compute for targets only, and apply nothing to sources
# that they would not apply anyway; the others compute halo rows too, which are then dropped.
_BIPARTITE: Final = (SAGEConv, GraphConv, GINConv, GINEConv)


class HaloHook:
    """The hooks of one convolution."""

    def __init__(
        self,
        convolution: MessagePassing,
        halo: HaloExchange,
        layer: str,
        norm_of: Callable[[bool, bool], tuple[Tensor, Tensor]],
    ) -> None:
        """Take over the normalisation of a `GCNConv`.

        Args:
            convolution: The convolution.
            halo: This rank's halo exchange.
            layer: Stable name, the same on every rank.
            norm_of: Returns edges and weights for (improved, add_self_loops).
        """
        self._halo = halo
        self._layer = layer
        self._bipartite = is_bipartite(convolution)
        self._signature = inspect.signature(type(convolution).forward)
        self._num_propagations = 0
        self._proven = is_known(convolution) or self._bipartite
        self._norm: tuple[Tensor, Tensor] | None = None
        if isinstance(convolution, GCNConv) and convolution.normalize:
            self._norm = norm_of(convolution.improved, convolution.add_self_loops)
            convolution.normalize = False

    def __deepcopy__(self, memo: dict[int, Any]) -> HaloHook:
        """Share: a copy of a model is of the same partition."""
        return self

    def before(
        self, convolution: MessagePassing, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Append halo rows to `x`."""
        given = dict(self._signature.bind(convolution, *args, **kwargs).arguments)
        del given[next(iter(given))]  # self
        self._check(given)
        x = given["x"]
        extended = self._halo.extend(x, layer=self._layer, training=convolution.training)
        given["x"] = (extended, x) if self._bipartite else extended
        if self._norm is not None:
            self._check_norm_arguments(given)
            given["edge_index"], weight = self._norm
            given["edge_weight"] = weight.to(x.dtype)
        if not self._proven:
            self._prove(convolution, given)
        self._num_propagations = 0
        return (), given

    def _prove(self, convolution: MessagePassing, given: dict[str, Any]) -> None:
        """Try a user's convolution once. All ranks do so at its first call, and agree."""

        def call(arguments: dict[str, Any]) -> Any:
            self._num_propagations = 0
            return type(convolution).forward(convolution, **arguments)

        with together(self._halo.comm, f"checking the convolution '{self._layer}'"):
            check_locality(
                convolution,
                call,
                given,
                num_inner=self._halo.plan.num_inner,
                layer=self._layer,
            )
        self._proven = True

    def after(self, convolution: MessagePassing, args: tuple[Any, ...], output: Any) -> Any:
        """Keep the inner rows."""
        if self._bipartite:
            return output
        if isinstance(output, tuple):  # (rows, (edges, attention)), as attention layers return
            return (output[0][: self._halo.plan.num_inner], *output[1:])
        return output[: self._halo.plan.num_inner]

    def count_propagation(self, convolution: MessagePassing, inputs: Any) -> None:
        """Refuse a second hop: its halo rows would be stale."""
        self._num_propagations += 1
        if self._num_propagations > 1 and not hops_allowed(convolution):
            raise TypeError(
                f"'{self._layer}' ({type(convolution).__name__}) propagates more than once in one "
                "call. The second hop would read halo rows that were not exchanged. Use one "
                "single-hop convolution per hop."
            )

    def _check(self, given: dict[str, Any]) -> None:
        x = given.get("x")
        if not isinstance(x, Tensor):
            raise TypeError(
                f"'{self._layer}': expected one tensor of inner rows for 'x', got "
                f"{type(x).__name__}. A converted layer makes pairs of rows by itself."
            )
        edge_index = given.get("edge_index")
        if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
            raise TypeError(
                f"'{self._layer}': expected the partition's edge_index [2, E] for 'edge_index', "
                f"got {type(edge_index).__name__}. Sparse adjacency matrices are not supported."
            )
        num_inner = self._halo.plan.num_inner
        for name, value in given.items():
            if name in ("x", "edge_index", "return_attention_weights") or value is None:
                continue
            if name == "size":
                raise ValueError(f"'{self._layer}': expected None for 'size', got {value}.")
            if name not in ("edge_weight", "edge_attr", "edge_type"):
                raise ValueError(
                    f"'{self._layer}': expected None for '{name}', got {type(value).__name__}; "
                    f"only 'x' is given halo rows ({num_inner} inner rows here)."
                )

    def _check_norm_arguments(self, given: dict[str, Any]) -> None:
        partition = self._halo.partition
        if not _same(given["edge_index"], partition.edge_index):
            raise ValueError(
                f"'{self._layer}': expected partition.edge_index for 'edge_index' of a GCNConv "
                "that normalises, got other edges, whose global degrees are unknown. Construct it "
                "with normalize=False and pass weights that you normalised."
            )
        if not _same(given.get("edge_weight"), partition.edge_weight):
            raise ValueError(
                f"'{self._layer}': expected partition.edge_weight for 'edge_weight' of a GCNConv "
                "that normalises, got something else. Pass part.edge_weight, which is None for a "
                "graph without weights."
            )


def _same(given: Tensor | None, known: Tensor | None) -> bool:
    if given is None or known is None:
        return given is known
    return given.shape == known.shape and given.data_ptr() == known.data_ptr()


def is_bipartite(convolution: MessagePassing) -> bool:
    """Return whether a convolution is given pairs of source and target rows."""
    return any(type(convolution).forward is kind.forward for kind in _BIPARTITE)
