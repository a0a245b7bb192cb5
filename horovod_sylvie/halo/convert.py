"""Make a PyG model run on a partition.

Any model built of `MessagePassing` layers keeps its class, its parameters and its state-dict keys:
each convolution gets a hook that appends halo rows to its input and one that keeps the inner rows
of its output. In between, the layer runs unchanged on local edges.

Shapes: I inner rows, H halo rows.
"""

from __future__ import annotations

import hashlib
import inspect
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.nn import GCNConv, GINConv, GINEConv, GraphConv, MessagePassing, SAGEConv

from ..comm.agreement import require_agreement, together
from .batch_norm import SynchronizedBatchNorm
from .exchange import HaloExchange
from .gcn_norm import gcn_norm
from .refusals import hops_allowed, inner_refusal, refusal

# These take (source rows, target rows), compute for targets only, and apply nothing to sources
# that they would not apply anyway; the others compute halo rows too, which are then dropped.
_BIPARTITE: Final = (SAGEConv, GraphConv, GINConv, GINEConv)


def convert_model(model: nn.Module, halo: HaloExchange) -> nn.Module:
    """Make a PyG model exchange halo rows. Collective: all ranks convert the same model.

    Call it on the model as built for one process, then call the model with the partition's rows
    and edges: `model(part.x, part.edge_index)`. Rows in, rows out: [I, F] to [I, C].

    `BatchNorm1d` (also inside PyG's `BatchNorm`) is replaced by one that is synchronised over all
    ranks; it shares the parameters. A `GCNConv` that normalises is given weights from global
    degrees, and its own `normalize` is switched off.

    Args:
        model: The model; modified in place.
        halo: This rank's halo exchange.

    Returns:
        The model.

    Raises:
        PeerError: The ranks' models differ, or another rank's was refused.
        TypeError: A module would give wrong results on a partition; the text names it, the reason
            and what to use instead. The model is then unmodified.
        ValueError: The model has no convolution, has parameters without a shape, or was converted
            before.
    """
    with together(halo.comm, "converting the model"):
        convolutions = _find_convolutions(model)
        _check_ready(model, convolutions)
    require_agreement(
        halo.comm,
        "model",
        _description(model),
        advice="Build the same model with the same options on every rank.",
    )
    for name, convolution in convolutions.items():
        hook = _HaloHook(convolution, halo, name)
        convolution.register_forward_pre_hook(hook.before, with_kwargs=True)
        convolution.register_forward_hook(hook.after)
        convolution.register_propagate_forward_pre_hook(hook.count_propagation)
    return _with_synchronized_batch_norm(model, halo)


def _find_convolutions(model: nn.Module) -> dict[str, MessagePassing]:
    """Return the convolutions by name; raise where a module would be wrong on a partition."""
    convolutions: dict[str, MessagePassing] = {}
    problems = []
    for name, module in model.named_modules():
        label = name or type(module).__name__
        owner = next(
            (
                outer
                for outer, convolution in convolutions.items()
                if convolution is model or name.startswith(f"{outer}.")
            ),
            None,
        )
        if owner is None:
            reason = refusal(module)
            if isinstance(module, MessagePassing):
                convolutions[label] = module
        else:
            sees_halo_rows = not _is_bipartite(convolutions[owner])
            reason = inner_refusal(module, sees_halo_rows=sees_halo_rows)
        if reason is not None:
            problems.append(f"'{label}' ({type(module).__name__}): {reason}")
    if problems:
        raise TypeError(
            "convert_model: expected a 'model' that can run on a partition; " + "; ".join(problems)
        )
    return convolutions


def _check_ready(model: nn.Module, convolutions: dict[str, MessagePassing]) -> None:
    """Raise where there is nothing to convert, not yet, or not again."""
    if not convolutions:
        raise ValueError(
            f"convert_model: expected a 'model' with a torch_geometric MessagePassing layer, got "
            f"{type(model).__name__} with none."
        )
    unshaped = [name for name, parameter in model.named_parameters() if is_lazy(parameter)]
    if unshaped:
        raise ValueError(
            f"convert_model: expected an initialised 'model'; '{unshaped[0]}' has no shape yet. "
            "Construct it with all widths, or call it once on a small graph first."
        )
    for name, convolution in convolutions.items():
        if any(_is_halo_hook(hook) for hook in convolution._forward_pre_hooks.values()):
            raise ValueError(
                f"convert_model: expected an unconverted 'model'; '{name}' is converted."
            )


def _is_bipartite(convolution: MessagePassing) -> bool:
    return any(type(convolution).forward is kind.forward for kind in _BIPARTITE)


def _is_halo_hook(hook: Any) -> bool:
    return isinstance(getattr(hook, "__self__", None), _HaloHook)


def _description(model: nn.Module) -> str:
    shapes = [f"{name} {tuple(p.shape)} {p.dtype}" for name, p in model.named_parameters()]
    digest = hashlib.blake2b(f"{model!r} {shapes}".encode(), digest_size=8).hexdigest()
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    return f"{type(model).__name__}, {num_parameters} parameters, digest {digest}"


def _with_synchronized_batch_norm(model: nn.Module, halo: HaloExchange) -> nn.Module:
    replaced: dict[int, nn.Module] = {}  # a layer used in two places stays one layer
    for layer, module in list(model.named_modules(remove_duplicate=False)):
        if isinstance(module, SynchronizedBatchNorm):
            continue
        if isinstance(module, nn.BatchNorm1d | nn.SyncBatchNorm):
            if id(module) not in replaced:
                replaced[id(module)] = SynchronizedBatchNorm.convert(module, halo.comm, layer)
            parent, _, name = layer.rpartition(".")
            setattr(model.get_submodule(parent), name, replaced[id(module)])
    return model


class _HaloHook:
    """The hooks of one convolution."""

    def __init__(self, convolution: MessagePassing, halo: HaloExchange, layer: str) -> None:
        self._halo = halo
        self._layer = layer
        self._bipartite = _is_bipartite(convolution)
        self._signature = inspect.signature(type(convolution).forward)
        self._num_propagations = 0
        self._norm: tuple[Tensor, Tensor] | None = None
        if isinstance(convolution, GCNConv) and convolution.normalize:
            self._norm = gcn_norm(
                halo.partition,
                improved=convolution.improved,
                add_self_loops=convolution.add_self_loops,
            )
            convolution.normalize = False

    def __deepcopy__(self, memo: dict[int, Any]) -> _HaloHook:
        """Share: a copy of a model is of the same partition."""
        return self

    def before(
        self, convolution: MessagePassing, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Append halo rows to `x`."""
        given = dict(self._signature.bind(convolution, *args, **kwargs).arguments)
        del given[next(iter(given))]  # self
        self._check(given)
        self._num_propagations = 0
        x = given["x"]
        extended = self._halo.extend(x, layer=self._layer, training=convolution.training)
        given["x"] = (extended, x) if self._bipartite else extended
        if self._norm is not None:
            self._check_norm_arguments(given)
            given["edge_index"], weight = self._norm
            given["edge_weight"] = weight.to(x.dtype)
        return (), given

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
