"""Which convolutions may be computed in two calls, and the arguments of one such call.

Shapes: I inner rows, H halo rows, E edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torch import Tensor, nn
from torch_geometric.nn import MessagePassing, aggr
from torch_geometric.nn.aggr.fused import FusedAggregation

from .locality import PER_EDGE
from .subgraphs import Subgraph

# These give a target the same result whatever other targets are aggregated with it. Those that
# pad every target's in-edges to the longest list, such as LSTMAggregation, do not.
_TARGET_BY_TARGET: Final = (
    aggr.DegreeScalerAggregation,
    aggr.MaxAggregation,
    aggr.MeanAggregation,
    aggr.MedianAggregation,
    aggr.MinAggregation,
    aggr.MulAggregation,
    aggr.MultiAggregation,
    aggr.PowerMeanAggregation,
    aggr.QuantileAggregation,
    aggr.SoftmaxAggregation,
    aggr.StdAggregation,
    aggr.SumAggregation,
    aggr.VarAggregation,
    FusedAggregation,  # several of these at once
)
_NUM_OWN_HOOKS: Final = 3  # what convert_model registers


def may_split(convolution: MessagePassing) -> bool:
    """Return whether rows may be computed in two calls: none depends on which others are with it.

    Args:
        convolution: The convolution, one that `locality` and `refusals` accept.
    """
    for module in convolution.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            return False  # statistics over all rows
        if isinstance(module, aggr.Aggregation) and type(module) not in _TARGET_BY_TARGET:
            return False
    return True


def is_watched(convolution: MessagePassing) -> bool:
    """Return whether others look into a convolution, who would expect one call with all rows.

    Args:
        convolution: The convolution, converted.
    """
    attributes = vars(convolution)
    num_hooks = sum(
        len(value)
        for name, value in attributes.items()
        if name.endswith(("_forward_hooks", "_forward_pre_hooks"))
    )
    is_explained = bool(getattr(convolution, "explain", False))
    return num_hooks > _NUM_OWN_HOOKS or "forward" in attributes or is_explained


def asks_for_rows_only(given: Mapping[str, Any]) -> bool:
    """Return whether a call's arguments can be split, and its result is one tensor of rows.

    Args:
        given: Arguments of a convolution's forward.
    """
    num_edges = given["edge_index"].shape[-1]
    per_edge = [given[name] for name in PER_EDGE if given.get(name) is not None]
    return given.get("return_attention_weights") is None and all(
        isinstance(values, Tensor) and values.shape[:1] == (num_edges,) for values in per_edge
    )


def narrowed(given: Mapping[str, Any], part: Subgraph, rows: tuple[Tensor, ...]) -> dict[str, Any]:
    """Return the arguments for one part of the edges.

    Args:
        given: Arguments for all edges.
        part: The part.
        rows: The part's rows; or its source rows and its target rows.

    Returns:
        The arguments, with values per edge for the part's edges.
    """
    per_edge = {
        name: given[name].index_select(0, part.edges)
        for name in PER_EDGE
        if isinstance(given.get(name), Tensor)
    }
    x = rows[0] if len(rows) == 1 else rows
    return {**given, **per_edge, "x": x, "edge_index": part.edge_index}
