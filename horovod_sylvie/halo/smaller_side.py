"""Which rows travel: a convolution's input, or the input times a weight, where that is narrower.

A `GCNConv` multiplies all rows by its weight before it aggregates them, and so does a `GATConv`.
A `SAGEConv` multiplies the mean or sum of its neighbours' rows, which equals the mean or sum of
the products. So the owner of a row can multiply it before it travels. This saves bytes where the
product is narrower, and the multiplication of halo rows where the layer would repeat it on them.
Sums are taken in another order, so the results equal each other up to rounding. Where rows are
quantised, the rounding of the gradients that come home now reaches the weight's gradient, unbiased;
at equal width nothing would be saved for that, so the input travels.

Not here: applying the weight (`applied_linear.py`), and when to (`hook.py`).
"""

from __future__ import annotations

from typing import Final

from torch import nn
from torch_geometric.nn import GATConv, GCNConv, MessagePassing, SAGEConv
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation
from torch_geometric.nn.dense import Linear

from .applied_linear import AppliedLinear

_LINEAR_AGGREGATIONS: Final = (MeanAggregation, SumAggregation)


def prepare_smaller_side(convolution: MessagePassing) -> None:
    """Let a convolution be given products, where its kind allows that; modified in place.

    Args:
        convolution: The convolution. Its parameters and its state-dict keys stay.
    """
    linear = _first_linear(convolution)
    if type(linear) is Linear:  # a user's own kind of linear layer stays as it is
        AppliedLinear.convert(linear)


def smaller_side(convolution: MessagePassing) -> AppliedLinear | None:
    """Return the layer whose product should travel instead of the convolution's input.

    Args:
        convolution: The convolution, prepared.

    Returns:
        The layer, not marked as applied; or None where the input should travel: it is narrower,
        or something was put in the layer's place, or hooks watch what the layer is given.
    """
    linear = _first_linear(convolution)
    if type(linear) is not AppliedLinear or linear._forward_hooks or linear._forward_pre_hooks:
        return None
    if sum(child is linear for child in convolution._modules.values()) > 1:
        return None  # it is also applied to something else
    width_out, width_in = linear.weight.shape
    return linear if width_out < width_in else None


def forget_applied(convolution: MessagePassing) -> None:
    """Let the convolution apply its weight by itself again.

    Args:
        convolution: The convolution, prepared or not.
    """
    linear = _first_linear(convolution)
    if isinstance(linear, AppliedLinear):
        linear.applied = False


def _first_linear(convolution: MessagePassing) -> nn.Module | None:
    """Return the layer that neighbours' rows go through, before or right after aggregation."""
    if "forward" in vars(convolution):  # somebody replaced it
        return None
    forward = type(convolution).forward
    linear: nn.Module | None = None
    if forward is GCNConv.forward:
        linear = convolution.lin
    elif forward is GATConv.forward and getattr(convolution, "res", None) is None:
        linear = convolution.lin  # None where sources and targets have weights of their own
    elif _aggregates_first(convolution) and _is_linear_up_to_there(convolution):
        linear = convolution.lin_l
    return linear


def _aggregates_first(convolution: MessagePassing) -> bool:
    return type(convolution) is SAGEConv  # a subclass may change the messages


def _is_linear_up_to_there(convolution: SAGEConv) -> bool:
    aggregates = type(convolution.aggr_module) in _LINEAR_AGGREGATIONS
    return aggregates and not convolution.project
