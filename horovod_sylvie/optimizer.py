"""The one door: wrap a torch optimizer, and its gradients are exchanged with all ranks."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor

from .comm.elastic import register_elastic_handler
from .comm.horovod import HorovodCommunicator
from .comm.protocol import Communicator
from .gradient.clipping import clip_local
from .gradient.compression import Compression, Lags, check_compression
from .gradient.control import OptimizerControl
from .gradient.gradient_exchange import GradientExchange
from .gradient.hyperparameters import read_numbers
from .gradient.loss_scaler import synchronize_before_unscaling
from .gradient.momentum import MomentumOptions, take_momentum
from .gradient.named_parameters import check_groups, check_named_parameters
from .gradient.options import ExchangeOptions
from .gradient.parameter import ExchangedParameter, exchanged_parameters
from .gradient.reduction import Reduction
from .gradient.wrapped_optimizer import WrappedOptimizer, check_passes, wrapped_class
from .halo.exchange import HaloExchange
from .optimizer_arguments import (
    check_halo,
    check_limits,
    check_optimizer,
    check_scaler,
    checked_op,
)


def DistributedOptimizer(  # noqa: N802  # Horovod's name
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Tensor]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: Any = "Average",
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: Any = None,
    *,
    momentum: Literal["post", "dgc"] = "post",
    clip_norm: float | None = None,
    scaler: Any = None,
    uneven_batches: bool = False,
    telemetry_every: int = 0,
    halo: HaloExchange | None = None,
    comm: Communicator | None = None,
) -> Any:
    """Wrap an optimizer so that gradients are reduced over all ranks before each step.

    Takes the place of `hvd.DistributedOptimizer`: the positional arguments are Horovod's, with
    Horovod's defaults. The exchange of each layer starts in backward, when its gradient is there.

    Args:
        optimizer: Any torch optimizer. It is kept inside: its state, defaults, hooks and
            schedulers stay valid.
        named_parameters: Usually `model.named_parameters()`. The names must be the same on every
            rank; without them parameters are numbered.
        compression: `hvs.Compression.none`, `.fp16`, `.bf16`, `.topk(density=...)`, `.lags()`, or
            any Horovod compressor.
        backward_passes_per_step: Backward passes whose gradients are added up for one step.
        op: `hvd.Average` or `hvd.Sum`, or their names.
        gradient_predivide_factor: With Average: gradients are divided by it before the sum and
            the sum by P / factor. Values of top-k travel unscaled: they cannot overflow.
        num_groups: Horovod's older name of `groups`.
        groups: A number of groups, or lists of parameters, that are exchanged together. Not with
            `.lags()`, which decides that itself.
        sparse_as_dense: Exchange sparse gradients as dense ones.
        process_set: `hvd.ProcessSet` to reduce over; None for all ranks. Ranks outside it train
            by themselves.
        momentum: "post": the optimizer's momentum acts on the reduced gradient. "dgc": momentum
            correction; SGD's momentum is moved in front of the selection (see `docs`).
        clip_norm: Scale each rank's gradient down so that what a step adds has at most this norm,
            before it meets a residual. Exchanges then start at the end of backward.
        scaler: The `GradScaler` that scales the loss. Residuals are then free of its scale, an
            overflow on any rank makes all ranks skip, and `scaler.step(optimizer)` is enough.
        uneven_batches: Ranks may run out of batches at different steps, and then call `join()`.
        telemetry_every: Sample compression error every so many steps; 0 for never.
        halo: The halo exchange of a model that trains on a partitioned graph. The optimizer then
            owns both kinds of traffic: gradients start at the end of backward, so that no halo
            row waits behind one, and without `compression` and `groups` they travel in one
            message; halo gradients that nobody waits for yet go behind them; `step()` ends the
            halo's epoch; and `state_dict()` and `telemetry()` hold both. `op` must be Sum:
            `loss_share` divides by the training nodes of the whole graph.
        comm: What to communicate through, instead of Horovod; for tests and other transports.

    Returns:
        An optimizer of the same class (`isinstance` holds), with Horovod's `synchronize`,
        `skip_synchronize`, `set_backward_passes_per_step`, and with `join`, `consolidate` and
        `telemetry`.

    Raises:
        TypeError: An argument of the wrong kind, or parameters whose dtype cannot be exchanged.
        ValueError: An argument out of its range, or parameters without a name.
        NotImplementedError: `op` is Adasum.

    Note:
        Not collective. The first step checks that all ranks run the same plan.
    """
    name = "DistributedOptimizer"
    check_optimizer(optimizer)
    check_compression(name, compression)
    check_passes(name, backward_passes_per_step)
    op_name = checked_op(op, gradient_predivide_factor)
    if num_groups:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups`.",
            DeprecationWarning,
            stacklevel=2,
        )
        groups = num_groups if groups is None else groups
    if groups and isinstance(compression, Lags):
        raise ValueError(
            f"{name}: expected no 'groups' with Compression.lags, which decides by itself what "
            f"travels together, got {groups!r}. Leave them out, or use Compression.topk."
        )
    check_limits(clip_norm, telemetry_every, momentum)
    check_scaler(scaler)
    check_halo(halo, op_name, process_set=process_set, scaler=scaler, uneven_batches=uneven_batches)
    named = check_named_parameters(optimizer.param_groups, named_parameters)
    participates = process_set is None or bool(process_set.included())
    if comm is None and halo is not None:
        comm = halo.comm
    if comm is None and participates:
        comm = HorovodCommunicator(process_set=process_set)
    elastic = os.environ.get("HOROVOD_ELASTIC") == "1"
    is_active = comm is not None and (comm.size > 1 or elastic)
    options = ExchangeOptions(
        compression=compression,
        reduction=Reduction(op_name, float(gradient_predivide_factor)),
        groups=check_groups(groups, named),
        sparse_as_dense=sparse_as_dense,
        clip_norm=clip_norm,
        uneven_batches=uneven_batches,
        momentum=_taken(optimizer) if momentum == "dgc" and is_active else MappingProxyType({}),
        scaler=scaler,
        telemetry_every=telemetry_every,
        yields=halo is not None,
    )
    parameters = exchanged_parameters(named)
    exchange = None
    if is_active and comm is not None:
        exchange = GradientExchange(
            comm,
            parameters,
            options,
            passes=backward_passes_per_step,
            rate_of=_rate_of(optimizer),
            hyperparameters=lambda: read_numbers(optimizer.param_groups),
            after_submission=(lambda: None) if halo is None else halo.parts.pipeline.release,
        )
        if halo is not None:
            halo.parts.pipeline.holds_gradients = True
    control = OptimizerControl(
        exchange,
        named=named,
        passes=backward_passes_per_step,
        clip_local=lambda: _clip_here(parameters, options),
        renew=lambda old, force: _renewed(old, force, process_set),
    )
    wrapped = wrapped_class(type(optimizer))(optimizer, control, halo)
    if scaler is not None:
        synchronize_before_unscaling(scaler, wrapped)
    if elastic:
        register_elastic_handler(
            WrappedOptimizer,
            lambda each: each._hvs_control.use_new_ranks(),
            lambda each: each._hvs_control.go_back(),
        )
    return wrapped


def _taken(optimizer: torch.optim.Optimizer) -> MappingProxyType[int, MomentumOptions]:
    """Take momentum and weight decay from all groups, or from none."""
    names = type(optimizer).__name__
    if optimizer.state:
        raise ValueError(
            "DistributedOptimizer: expected an optimizer without state for momentum='dgc', got "
            "one that has taken steps: its momentum belongs to no rank. Wrap it before the first "
            "step and before load_state_dict, or use momentum='post'."
        )
    tried = [dict(group) for group in optimizer.param_groups]
    for group in tried:
        take_momentum(group, optimizer_name=names)
    taken: dict[int, MomentumOptions] = {}
    for group in optimizer.param_groups:
        options = take_momentum(group, optimizer_name=names)
        taken |= {id(tensor): options for tensor in group["params"]}
    return MappingProxyType(taken)


def _clip_here(parameters: Sequence[ExchangedParameter], options: ExchangeOptions) -> None:
    if options.clip_norm is not None:
        clip_local(parameters, options.clip_norm, loss_scale=options.loss_scale())


def _rate_of(optimizer: torch.optim.Optimizer) -> Callable[[ExchangedParameter], float]:
    """Return what gives a parameter's learning rate: groups may be replaced, not their order."""
    place_of: dict[int, int] = {}

    def rate_of(parameter: ExchangedParameter) -> float:
        if id(parameter.tensor) not in place_of:
            for place, group in enumerate(optimizer.param_groups):
                place_of.update((id(tensor), place) for tensor in group["params"])
        return float(optimizer.param_groups[place_of[id(parameter.tensor)]]["lr"])

    return rate_of


def _renewed(old: Communicator, force: bool, process_set: Any) -> Communicator:
    if not isinstance(old, HorovodCommunicator) or not (force or old.ranks_changed()):
        return old
    return HorovodCommunicator(timeout_s=old.timeout_s, process_set=process_set)
