"""What cannot run on a partition unchanged, and what to use instead.

`convert_model` runs a convolution on `[inner; halo]` rows and keeps the inner ones. That equals
the full graph if each inner row depends on its in-edges, on its neighbours' rows as given, and on
nothing else. Here is what breaks this, found by module, before any rank can hang or train wrongly:

* several hops inside one module: halo rows are not refreshed between the hops;
* degrees of neighbours, computed inside the module: a rank sees only its own nodes' in-edges;
* arguments with one row per node other than `x`: their halo rows are not exchanged;
* statistics or attention over all nodes: a rank has only its share of them.
"""

from __future__ import annotations

import inspect
from types import MappingProxyType
from typing import Final

from torch import nn
from torch_geometric import nn as pyg_nn
from torch_geometric.nn import GCNConv, MessagePassing
from torch_geometric.nn.aggr import Aggregation

from .batch_norm import SynchronizedBatchNorm

_EDGE_ARGUMENTS: Final = frozenset(
    {"edge_index", "edge_weight", "edge_attr", "edge_type", "size", "return_attention_weights"}
)
_NEIGHBOUR_DEGREES: Final = frozenset({"gcn_norm", "get_laplacian"})
_SEVERAL_HOPS: Final = frozenset(
    {"APPNP", "ARMAConv", "ChebConv", "GatedGraphConv", "MixHopConv", "PANConv", "SGConv"}
    | {"SSGConv", "SignedConv", "TAGConv"}
)
_PADDED: Final = frozenset({"GRUAggregation", "LSTMAggregation"})
_REPEATED_ON_ONE_INPUT: Final = frozenset({"FiLMConv", "RGCNConv"})
_BATCH_NORM_FORWARDS: Final = (nn.BatchNorm1d.forward, SynchronizedBatchNorm.forward)
_OVER_ALL_NODES: Final = MappingProxyType(
    {
        "DiffGroupNorm": "SynchronizedBatchNorm by way of torch.nn.BatchNorm1d",
        "GPSConv": "a local convolution",
        "GraphNorm": "torch.nn.BatchNorm1d or torch.nn.LayerNorm",
        "GraphSizeNorm": "torch.nn.LayerNorm",
        "HeteroBatchNorm": "torch.nn.BatchNorm1d",
        "InstanceNorm": "torch.nn.BatchNorm1d or torch.nn.LayerNorm",
        "InstanceNorm1d": "torch.nn.BatchNorm1d or torch.nn.LayerNorm",
        "MeanSubtractionNorm": "torch.nn.BatchNorm1d",
        "MultiheadAttention": "GATConv, which attends to neighbours",
        "PairNorm": "torch.nn.LayerNorm",
    }
)


def refusal(module: nn.Module) -> str | None:
    """Say why a module would give wrong results on a partition.

    Args:
        module: A module of the model, not one inside a convolution.

    Returns:
        The reason and the cure, or None where the module is right as it is.
    """
    name = type(module).__name__
    if isinstance(module, MessagePassing):
        return _convolution_refusal(module)
    if name in _OVER_ALL_NODES:
        return f"it works over all nodes, of which a rank has a share; use {_OVER_ALL_NODES[name]}"
    if isinstance(module, pyg_nn.LayerNorm) and module.mode == "graph":
        return "it normalises over all nodes; use LayerNorm(mode='node') or torch.nn.LayerNorm"
    if isinstance(module, Aggregation):
        return "it aggregates over all nodes of a graph, of which a rank has a share"
    if isinstance(module, pyg_nn.BatchNorm) and module.allow_single_element:
        return (
            "it leaves out the statistics on a rank with one row, while the others wait for them; "
            "construct it with allow_single_element=False"
        )
    if isinstance(module, nn.BatchNorm1d) and type(module).forward not in _BATCH_NORM_FORWARDS:
        return "its forward is its own, and would be replaced; use torch.nn.BatchNorm1d"
    return None


def inner_refusal(module: nn.Module, *, sees_halo_rows: bool) -> str | None:
    """Say why a module inside a convolution would give wrong results.

    Args:
        module: A module inside a convolution.
        sees_halo_rows: Whether the convolution may apply it to halo rows.

    Returns:
        The reason and the cure, or None.
    """
    if type(module).__name__ in _PADDED:
        return (
            "it pads every node's in-edges to the longest list of all nodes, of which a rank sees "
            "a part; use 'mean', 'sum' or 'max'"
        )
    if isinstance(module, Aggregation):
        return None  # inside a convolution it aggregates a node's in-edges, which are all here
    if isinstance(module, MessagePassing):
        return "it is a convolution inside a convolution; its halo rows would not be exchanged"
    if sees_halo_rows and isinstance(
        module, nn.BatchNorm1d | nn.SyncBatchNorm | SynchronizedBatchNorm
    ):
        return (
            "it would count halo rows in its statistics; move the normalisation behind the "
            "convolution, or use GINConv, GINEConv, GraphConv or SAGEConv around it"
        )
    return refusal(module)


def hops_allowed(module: MessagePassing) -> bool:
    """Return whether a convolution may propagate several times: always on the rows it was given."""
    return type(module).__name__ in _REPEATED_ON_ONE_INPUT


def _convolution_refusal(module: MessagePassing) -> str | None:
    name = type(module).__name__
    if module.flow != "source_to_target":
        return (
            "it aggregates at edge sources (flow='target_to_source'), whose out-edges a rank does "
            "not have; use flow='source_to_target' and partition the reversed graph"
        )
    if name in _SEVERAL_HOPS:
        return (
            "it propagates over several hops without refreshing halo rows; use one single-hop "
            "convolution per hop"
        )
    if name == "SuperGATConv":
        return "it samples negative edges among all nodes; use GATv2Conv"
    argument_refusal = _arguments_refusal(module)
    if argument_refusal is not None:
        return argument_refusal
    if isinstance(module, GCNConv) and module.normalize and not _takes(module, "edge_weight"):
        return (
            "it normalises by its neighbours' degrees, and its forward takes no edge_weight to be "
            "given global ones; add that argument, or construct it with normalize=False"
        )
    uses_degrees = _NEIGHBOUR_DEGREES & set(_code_names(module))
    if uses_degrees and not isinstance(module, GCNConv) and getattr(module, "normalize", True):
        return (
            "it normalises by its neighbours' degrees, which a rank sees in part; construct it "
            "with normalize=False, where it has that, and pass halo.gcn_norm's weights"
        )
    if getattr(module, "cached", False) and not isinstance(module, GCNConv):
        return "it caches its result; construct it with cached=False"
    return None


def _code_names(module: MessagePassing) -> tuple[str, ...]:
    """Return the names that the forward of a convolution mentions, where it is a function."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return () if code is None else code.co_names


def _takes(module: MessagePassing, argument: str) -> bool:
    return argument in inspect.signature(type(module).forward).parameters


def _arguments_refusal(module: MessagePassing) -> str | None:
    parameters = list(inspect.signature(type(module).forward).parameters.values())[1:]
    names = [parameter.name for parameter in parameters]
    if names[:1] != ["x"] or "edge_index" not in names:
        return (
            f"its forward takes ({', '.join(names)}); only forward(x, edge_index, ...) can be "
            "given halo rows"
        )
    for parameter in parameters[1:]:
        required = parameter.default is inspect.Parameter.empty
        if required and parameter.name not in _EDGE_ARGUMENTS:
            return (
                f"its forward requires '{parameter.name}', which may have one row per node; only "
                "'x' is given halo rows"
            )
    return None
