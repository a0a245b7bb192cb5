"""The hooks that make one convolution run on [inner; halo] rows.

The convolution is called once, as the user calls it; or twice, where rows that need no halo row
can be computed while the halo rows travel:

1. The pre-hook sends boundary rows: of the input, or of the input times the first weight.
2. It calls the convolution for the interior rows, and only then waits for the halo rows.
3. The call that the hooks surround computes the marginal rows.
4. The hook behind it puts both in the order of the inner rows.

Autograd goes the other way: it runs what was computed last first. So the gradients of halo rows
leave before the gradients of the interior are computed.

torch.compile leaves the hooks out: what they send must not become part of a graph.

Shapes: I inner rows, H halo rows.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv, GINConv, GINEConv, GraphConv, MessagePassing, SAGEConv

from ..comm.agreement import together
from .applied_linear import AppliedLinear
from .delta import Delta
from .exchange import HaloExchange
from .halo_rows import HaloRows
from .hook_arguments import check_call, check_norm_arguments
from .locality import check_locality, is_known
from .not_compiled import not_compiled
from .overlap import asks_for_rows_only, is_watched, may_split, narrowed
from .refusals import hops_allowed
from .smaller_side import prepare_smaller_side, smaller_side
from .subgraphs import SplitGraph, SplitGraphs

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
        splits: SplitGraphs,
        *,
        sends_products: bool,
        multiplies_first: bool,
    ) -> None:
        """Take over the normalisation of a `GCNConv`, and a first linear layer's weight.

        Args:
            convolution: The convolution.
            halo: This rank's halo exchange.
            layer: Stable name, the same on every rank.
            norm_of: Returns edges and weights for (improved, add_self_loops).
            splits: Splits edges; the model's layers share it.
            sends_products: Whether products should travel; the same on every rank.
            multiplies_first: Whether rows that travelled, or were kept, should be multiplied before
                they are aggregated, which makes them narrower.
        """
        self._halo = halo
        self._layer = layer
        self._splits = splits
        self._bipartite = is_bipartite(convolution)
        self._signature = inspect.signature(type(convolution).forward)
        self._num_propagations = 0
        self._proven = is_known(convolution) or self._bipartite
        self._may_split = may_split(convolution)
        self._is_copy = False
        self._interior: tuple[SplitGraph, Tensor] | None = None  # between the hooks of a call
        self._applied: AppliedLinear | None = None  # between the hooks of a call
        self._norm: tuple[Tensor, Tensor] | None = None
        if isinstance(convolution, GCNConv) and convolution.normalize:
            self._norm = norm_of(convolution.improved, convolution.add_self_loops)
            convolution.normalize = False
        self._sends_products = sends_products
        self._multiplies_first = multiplies_first
        if sends_products or multiplies_first:
            prepare_smaller_side(convolution)

    def __deepcopy__(self, memo: dict[int, Any]) -> HaloHook:
        """Share the exchange: a copy of a model is of the same partition."""
        new = copy.copy(self)
        new._is_copy = True
        return new

    @not_compiled
    def before(
        self, convolution: MessagePassing, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the convolution halo rows; compute the interior while they travel."""
        self._forget_call()  # one that was interrupted
        given = dict(self._signature.bind(convolution, *args, **kwargs).arguments)
        del given[next(iter(given))]  # self
        check_call(given, self._layer, self._halo.plan.num_inner)
        x = given["x"]
        self._check_copy(convolution, x)
        if self._norm is not None:
            check_norm_arguments(given, self._layer, self._halo.partition)
            given["edge_index"], weight = self._norm
            given["edge_weight"] = weight.to(x.dtype)
        product = self._product(convolution, x)
        rows = self._halo.start(
            x if product is None else product, layer=self._layer, training=convolution.training
        )
        split = self._split(convolution, given, rows)
        if split is not None:
            interior, marginal = self._parts_of(split, rows.x, x)
            if self._computes_interior(convolution, given, split, interior):
                nodes = torch.cat([marginal[0], rows.finish()])
                self._num_propagations = 0
                return (), narrowed(given, split.marginal, (nodes, *marginal[1:]))
        extended = rows.extended()
        if product is None and self._multiplies_first:
            extended = self._multiplied(convolution, extended)
        given["x"] = (extended, x) if self._bipartite else extended
        if not self._proven:
            self._prove(convolution, given)
        self._num_propagations = 0
        return (), given

    @not_compiled
    def after(self, convolution: MessagePassing, args: tuple[Any, ...], output: Any) -> Any:
        """Return the inner rows. Also called where the call failed, with None for `output`."""
        interior = self._interior
        self._forget_call()
        if output is None:
            return None
        if interior is not None:
            split, rows = interior
            return split.join(rows, output)
        if self._bipartite:
            return output
        if isinstance(output, tuple):  # (rows, (edges, attention)), as attention layers return
            return (output[0][: self._halo.plan.num_inner], *output[1:])
        return output[: self._halo.plan.num_inner]

    @not_compiled
    def count_propagation(self, convolution: MessagePassing, inputs: Any) -> None:
        """Refuse a second hop: its halo rows would be stale."""
        self._num_propagations += 1
        if self._num_propagations > 1 and not hops_allowed(convolution):
            raise TypeError(
                f"'{self._layer}' ({type(convolution).__name__}) propagates more than once in one "
                "call. The second hop would read halo rows that were not exchanged. Use one "
                "single-hop convolution per hop."
            )

    def _forget_call(self) -> None:
        self._interior = None
        if self._applied is not None:
            self._applied.applied = None
            self._applied = None

    def _call(self, convolution: MessagePassing, arguments: dict[str, Any]) -> Any:
        """Call the convolution past its hooks."""
        self._num_propagations = 0
        return type(convolution).forward(convolution, **arguments)

    def _product(self, convolution: MessagePassing, x: Tensor) -> Tensor | None:
        """Return what should travel instead of `x`, or None."""
        if not self._sends_products:
            return None
        if _is_training_step(convolution) and not x.requires_grad:
            return None  # its halo rows are fetched once; those of a product change with the weight
        if self._halo.fetched(x, layer=self._layer) is not None:
            return None
        return self._multiplied(convolution, x)

    def _multiplied(self, convolution: MessagePassing, x: Tensor) -> Tensor:
        """Return rows times the weight, which the convolution then leaves out."""
        linear = smaller_side(convolution, self, self._layer)
        product = linear.apply_weight(x)
        linear.applied, self._applied = product.dtype, linear
        # Autocast makes bfloat16 of products, in which a sum of many neighbours may stand still:
        # what is aggregated instead of rows is so in their dtype.
        return product.to(x.dtype) if self._bipartite else product

    def _split(
        self, convolution: MessagePassing, given: dict[str, Any], rows: HaloRows
    ) -> SplitGraph | None:
        """Return both parts of the edges, or None where one call serves better."""
        if not (self._halo.overlap and self._may_split and self._proven) or rows.is_ready:
            return None
        if is_watched(convolution) or not asks_for_rows_only(given):
            return None
        return self._splits.find(given["edge_index"])

    def _parts_of(
        self, split: SplitGraph, sent: Tensor, x: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return the rows `sent` that each part reads, and `x` of its targets in a pair."""
        interior, marginal = split.nodes(sent)
        if not self._bipartite:
            return (interior,), (marginal,)
        early, late = split.targets(x)
        return (interior, early), (marginal, late)

    def _computes_interior(
        self,
        convolution: MessagePassing,
        given: dict[str, Any],
        split: SplitGraph,
        x: tuple[Tensor, ...],
    ) -> bool:
        """Compute the interior rows; return False if the convolution returns something else."""
        output = self._call(convolution, narrowed(given, split.interior, x))
        if not isinstance(output, Tensor):
            self._may_split = False
            return False
        self._interior = (split, output)
        return True

    def _prove(self, convolution: MessagePassing, given: dict[str, Any]) -> None:
        """Try a user's convolution once. All ranks do so at its first call, and agree."""
        kept = dict(vars(convolution))
        with together(self._halo.comm, f"checking the convolution '{self._layer}'"):
            check_locality(
                convolution,
                lambda arguments: self._call(convolution, arguments),
                given,
                num_inner=self._halo.plan.num_inner,
                layer=self._layer,
            )
        self._proven = True
        now = vars(convolution)
        if kept.keys() != now.keys() or any(now[name] is not kept[name] for name in kept):
            self._may_split = False  # it keeps something of a call: that must be of all rows

    def _check_copy(self, convolution: MessagePassing, x: Tensor) -> None:
        if not (self._is_copy and keeps_rows(self._halo) and x.requires_grad):
            return
        if _is_training_step(convolution):
            raise RuntimeError(
                f"'{self._layer}': expected the model that was converted in training, got a copy "
                "of it. It would compute with rows of that model, which its HaloExchange keeps. "
                "Load the copy's state_dict into that model; or copy it before convert_model, and "
                "convert each with a HaloExchange of its own, with its own 'name'."
            )


def _is_training_step(convolution: MessagePassing) -> bool:
    return convolution.training and torch.is_grad_enabled()


def keeps_rows(halo: HaloExchange) -> bool:
    """Return whether an exchange keeps rows of one epoch for the next, which are of one model."""
    return halo.staleness.keeps_rows or isinstance(halo.codec, Delta)


def is_bipartite(convolution: MessagePassing) -> bool:
    """Return whether a convolution is given pairs of source and target rows."""
    return any(type(convolution).forward is kind.forward for kind in _BIPARTITE)
