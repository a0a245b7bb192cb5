"""Make a PyG model run on a partition.

Any model built of `MessagePassing` layers keeps its class, its parameters and its state-dict keys:
each convolution gets a hook that appends halo rows to its input and one that keeps the inner rows
of its output. In between, the layer runs unchanged on local edges, in one call or in two.

Shapes: I inner rows, H halo rows.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.nn import MessagePassing

from ..comm.agreement import require_agreement, together
from .batch_norm import SynchronizedBatchNorm
from .exchange import HaloExchange
from .gcn_norm import gcn_norm
from .hook import HaloHook, is_bipartite, keeps_rows
from .refusals import inner_refusal, refusal
from .smaller_side import multiplies_last, widths_around
from .subgraphs import SplitGraphs


def convert_model(model: nn.Module, halo: HaloExchange) -> nn.Module:
    """Make a PyG model exchange halo rows. Collective: all ranks convert the same model.

    Call it on the model as built for one process, then call the model with the partition's rows
    and edges: `model(part.x, part.edge_index)`. Rows in, rows out: [I, F] to [I, C].

    `BatchNorm1d` (also inside PyG's `BatchNorm`) is replaced by one that is synchronised over all
    ranks; it shares the parameters. A `GCNConv` that normalises is given weights from global
    degrees, and its own `normalize` is switched off. A convolution that is not PyG's own is tried
    at its first call: it must look at no more than a node's own in-edges and their sources.

    Args:
        model: The model; modified in place.
        halo: This rank's halo exchange.

    Returns:
        The model.

    Raises:
        PeerError: The ranks' models or their hooks differ, or another rank's was refused.
        TypeError: A module would give wrong results on a partition; the text names it, the reason
            and what to use instead. The model is then unmodified.
        ValueError: The model has no convolution, has parameters without a shape, or was converted
            before; or another model was converted with `halo`, which keeps that one's rows.
    """
    with together(halo.comm, "converting the model"):
        convolutions = _find_convolutions(model)
        _check_ready(model, convolutions)
        _check_first_model(halo)
    require_agreement(
        halo.comm,
        "model",
        _description(model),
        advice="Build the same model with the same options on every rank.",
    )
    products = _agreed_products(convolutions, halo)
    halo.parts.formats.products.update(products)

    @functools.cache  # layers with equal options share their edges and weights
    def norm_of(improved: bool, add_self_loops: bool) -> tuple[Tensor, Tensor]:
        return gcn_norm(halo.partition, improved=improved, add_self_loops=add_self_loops)

    splits = SplitGraphs(halo.plan.num_inner, halo.plan.num_halo)
    for name, convolution in convolutions.items():
        hook = HaloHook(
            convolution,
            halo,
            name,
            norm_of,
            splits,
            sends_products=name in products,
            multiplies_first=halo.smaller_side and multiplies_last(convolution),
        )
        convolution.register_forward_pre_hook(hook.before, with_kwargs=True)
        convolution.register_forward_hook(hook.after, always_call=True)
        convolution.register_propagate_forward_pre_hook(hook.count_propagation)
    halo.has_model = True
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
            sees_halo_rows = not is_bipartite(convolutions[owner])
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


def _check_first_model(halo: HaloExchange) -> None:
    if halo.has_model and keeps_rows(halo):
        raise ValueError(
            "convert_model: expected a 'halo' without a model, since it keeps rows from epoch to "
            f"epoch ({halo.codec}, {halo.staleness}), got one that a model was converted with. "
            "This model would compute with that one's rows. Make one HaloExchange per model, each "
            "with its own 'name'."
        )


def _agreed_products(convolutions: dict[str, MessagePassing], halo: HaloExchange) -> dict[str, int]:
    """Return the input widths of convolutions whose products travel; raise where ranks differ."""
    if not halo.smaller_side:
        return {}
    widths = {name: widths_around(one) for name, one in convolutions.items()}
    products = {
        name: pair[0]
        for name, pair in widths.items()
        if pair is not None and halo.parts.formats.prefer_products(*pair)
    }
    require_agreement(
        halo.comm,
        "layers whose products travel",
        ", ".join(products) or "none",
        advice="Register hooks on a layer on every rank or on none, or use "
        "HaloExchange(smaller_side=False).",
    )
    return products


def _is_halo_hook(hook: Any) -> bool:
    return isinstance(getattr(hook, "__self__", None), HaloHook)


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
