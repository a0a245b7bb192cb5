"""Which rows travel: a convolution's input, or the input times a weight, where that is narrower.

A `GCNConv` multiplies all rows by its weight before it aggregates them, and so does a `GATConv`.
A `SAGEConv` multiplies the mean or sum of its neighbours' rows, which equals the mean or sum of
the products. So the owner of a row can multiply it before it travels. This saves bytes where the
product is narrower, and the multiplication of halo rows where the layer would repeat it on them.
Sums are taken in another order, so the results equal each other up to rounding. Where rows are
quantised, the rounding of the gradients that come home now reaches the weight's gradient, unbiased;
at equal width nothing would be saved for that, so the input travels.

For the same reason a `SAGEConv` that makes rows narrower may multiply rows that did travel, or that
are kept, before it aggregates them. It then gathers fewer columns, one row per edge: features of
6,805 columns become 64 at once.

Whatever a user put between the rows and the product, such as hooks, would be given products instead
of rows. So rows travel there. That is decided once, since all ranks must send the same.

Not here: applying the weight (`applied_linear.py`), and when to (`hook.py`).
"""

from __future__ import annotations

from typing import Any, Final

from torch import nn
from torch_geometric.nn import GATConv, GCNConv, MessagePassing, SAGEConv
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation
from torch_geometric.nn.dense import Linear

from .applied_linear import AppliedLinear

_LINEAR_AGGREGATIONS: Final = (MeanAggregation, SumAggregation)
_HOOKS: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# What a SAGEConv does with rows before its linear layer; PyG has hooks around some of these.
_AGGREGATE: Final = ("aggregate", "message_and_aggregate", "update")
_BEFORE_LINEAR: Final = ("propagate", "message", "explain_message", *_AGGREGATE)


def widths_around(convolution: MessagePassing) -> tuple[int, int] | None:
    """Return the widths of a row before and behind a weight that may be applied before it travels.

    Ask when the model is converted, and let all ranks agree: hooks may differ from rank to rank.

    Args:
        convolution: The convolution, not converted.

    Returns:
        Both widths; or None where the kind of convolution does not allow it, or where something of
        a user's is given the input.
    """
    linear = _first_linear(convolution)
    if linear is None:
        return None
    width_out, width_in = linear.weight.shape
    return int(width_in), int(width_out)


def multiplies_last(convolution: MessagePassing) -> bool:
    """Return whether a convolution aggregates rows that a weight would have made narrower before.

    Args:
        convolution: The convolution, not converted.
    """
    widths = widths_around(convolution)
    return widths is not None and widths[1] < widths[0] and _aggregates_first(convolution)


def prepare_smaller_side(convolution: MessagePassing) -> None:
    """Let a convolution be given products; modified in place.

    Args:
        convolution: One with `widths_around` it. Its parameters and its state-dict keys stay.
    """
    linear = _first_linear(convolution)
    if type(linear) is Linear:  # not prepared already, in another convolution that shares it
        AppliedLinear.convert(linear)


def smaller_side(convolution: MessagePassing, ours: object, layer: str) -> AppliedLinear:
    """Return the layer whose product travels.

    Args:
        convolution: The convolution, prepared.
        ours: Whose methods are the hooks of the conversion.
        layer: Its name, for the message.

    Raises:
        RuntimeError: Something of a user's, put there since, would be given products.
    """
    linear = _first_linear(convolution, ours)
    last = next(reversed(convolution._forward_pre_hooks.values()), None)
    # A hook behind ours is given what ours returns.
    if not isinstance(linear, AppliedLinear) or not (last is None or _is_ours(last, ours)):
        raise RuntimeError(
            f"'{layer}': expected this {type(convolution).__name__}, its linear layer and what "
            "comes before that as they were in convert_model, got hooks, or something in their "
            "place, that would be given rows times a weight instead of rows. Make such changes "
            "before convert_model, on every rank, or use HaloExchange(smaller_side=False)."
        )
    return linear


def _first_linear(convolution: MessagePassing, ours: object = None) -> Linear | None:
    """Return the layer that rows go through first, or right after aggregation.

    None where there is no such layer, or where it, or what comes before it, is not PyG's alone.
    """
    if _is_replaced(convolution, "forward"):
        return None
    forward = type(convolution).forward
    linear: nn.Module | None = None
    if forward is GCNConv.forward:
        linear = convolution.lin
    elif forward is GATConv.forward and getattr(convolution, "res", None) is None:
        linear = convolution.lin  # None where sources and targets have weights of their own
    elif _aggregates_first(convolution) and _is_linear_up_to_there(convolution, ours):
        linear = convolution.lin_l
    if linear is None or type(linear) not in (Linear, AppliedLinear) or _is_watched(linear):
        return None
    if sum(child is linear for child in convolution._modules.values()) > 1:
        return None  # it is also applied to something else
    return linear


def _aggregates_first(convolution: MessagePassing) -> bool:
    return type(convolution) is SAGEConv  # a subclass may change the messages


def _is_linear_up_to_there(convolution: SAGEConv, ours: object) -> bool:
    """Return whether a mean or sum is all that happens to rows before the linear layer."""
    aggregation = convolution.aggr_module
    if convolution.project or type(aggregation) not in _LINEAR_AGGREGATIONS:
        return False
    hooks = [
        hook
        for step in _BEFORE_LINEAR
        for kind in ("forward_pre_hooks", "forward_hooks")
        for hook in getattr(convolution, f"_{step}_{kind}", {}).values()
    ]
    is_changed = any(_is_replaced(convolution, step) for step in _BEFORE_LINEAR)
    return not (is_changed or _is_watched(aggregation)) and all(
        _is_ours(hook, ours) for hook in hooks
    )


def _is_watched(module: nn.Module) -> bool:
    """Return whether something of a user's is given what a module is given."""
    return _is_replaced(module, "forward") or any(getattr(module, kind) for kind in _HOOKS)


def _is_replaced(module: nn.Module, method: str) -> bool:
    """Return whether a method is not that of the class, nor put there by PyG."""
    if method not in vars(module):
        return False
    own = [getattr(type(module), prefix + method, None) for prefix in ("", "_orig_")]
    function = getattr(vars(module)[method], "__func__", None)
    return function is None or function not in own


def _is_ours(hook: Any, ours: object) -> bool:
    return ours is not None and getattr(hook, "__self__", None) is ours
