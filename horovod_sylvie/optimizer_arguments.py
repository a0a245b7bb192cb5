"""The checks of what `DistributedOptimizer` is given. Every text says what was expected."""

from __future__ import annotations

import os
from typing import Any, Literal

import torch

from .comm.reduce_ops import reduce_op_name
from .halo.exchange import HaloExchange


def check_optimizer(optimizer: Any) -> None:
    """Raise unless `optimizer` is a torch optimizer that is not distributed yet."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(
            "DistributedOptimizer: expected a torch.optim.Optimizer for 'optimizer', got "
            f"{type(optimizer).__name__}."
        )
    # Horovod's own wrapped classes carry this name too
    if type(optimizer).__module__ == "horovod.torch.optimizer":
        raise ValueError(
            "DistributedOptimizer: expected an optimizer that is not distributed yet for "
            "'optimizer', got one that is. Its gradients would be reduced twice: wrap the torch "
            "optimizer itself, once."
        )


def checked_op(op: Any, predivide_factor: float) -> Literal["Average", "Sum"]:
    """Return the name of `op`; raise where it, or the factor with it, cannot be used."""
    op_name = reduce_op_name(op)
    if op_name == "Adasum":
        raise NotImplementedError(
            "DistributedOptimizer: Adasum combines whole gradients pair by pair inside Horovod; "
            "neither a compressed nor a residual form of it exists. Use "
            "hvd.DistributedOptimizer(optimizer, op=hvd.Adasum)."
        )
    if op_name == "Average":
        if not predivide_factor > 0:
            raise ValueError(
                "DistributedOptimizer: expected a positive number for "
                f"'gradient_predivide_factor', got {predivide_factor!r}."
            )
        return "Average"
    if op_name == "Sum":
        if predivide_factor != 1.0:
            raise ValueError(
                "DistributedOptimizer: gradient_predivide_factor is not supported with op != "
                f"Average, got {predivide_factor!r}. A sum is not divided."
            )
        return "Sum"
    raise ValueError(
        f"DistributedOptimizer: expected hvd.Average or hvd.Sum for 'op', got {op_name}."
    )


def check_limits(clip_norm: Any, telemetry_every: Any, momentum: Any) -> None:
    """Raise a ValueError where a number or a choice is out of its range."""
    is_number = isinstance(clip_norm, (int, float)) and not isinstance(clip_norm, bool)
    if clip_norm is not None and not (is_number and clip_norm > 0):
        raise ValueError(
            f"DistributedOptimizer: expected a positive number or None for 'clip_norm', got "
            f"{clip_norm!r}."
        )
    is_count = isinstance(telemetry_every, int) and not isinstance(telemetry_every, bool)
    if not is_count or telemetry_every < 0:
        raise ValueError(
            "DistributedOptimizer: expected a number of steps from 0 for 'telemetry_every', got "
            f"{telemetry_every!r}."
        )
    if momentum not in {"post", "dgc"}:
        raise ValueError(
            f"DistributedOptimizer: expected 'post' or 'dgc' for 'momentum', got {momentum!r}."
        )


def check_scaler(scaler: Any) -> None:
    """Raise a TypeError unless `scaler` is None or works as a GradScaler."""
    needed = ("unscale_", "get_scale", "is_enabled")
    if scaler is not None and not all(callable(getattr(scaler, each, None)) for each in needed):
        raise TypeError(
            "DistributedOptimizer: expected a torch.amp.GradScaler or None for 'scaler', got "
            f"{type(scaler).__name__}."
        )


def check_halo(
    halo: Any, op_name: str, *, process_set: Any, scaler: Any, uneven_batches: bool
) -> None:
    """Raise unless `halo` is None, or a halo exchange that goes with the other arguments."""
    name = "DistributedOptimizer"
    if halo is None:
        return
    if not isinstance(halo, HaloExchange):
        raise TypeError(
            f"{name}: expected a HaloExchange or None for 'halo', got {type(halo).__name__}."
        )
    if op_name != "Sum":
        raise ValueError(
            f"{name}: expected op=hvd.Sum with 'halo', got {op_name}. Each rank's loss is its "
            "share of the whole graph's (see loss_share), so gradients are added, not averaged."
        )
    if process_set is not None:
        raise ValueError(
            f"{name}: expected no 'process_set' with 'halo', whose ranks are those of its "
            "communicator. Give HaloExchange that communicator, and leave process_set out."
        )
    if uneven_batches:
        raise ValueError(
            f"{name}: expected no 'uneven_batches' with 'halo': every rank takes part in every "
            "forward pass, or the others wait for its rows."
        )
    if scaler is not None and scaler.is_enabled() and halo.staleness.keeps_rows:
        raise ValueError(
            f"{name}: expected no 'scaler' with {halo.staleness}: halo gradients of the epoch "
            "before have its scale, and an overflow would come back. Train in bfloat16, which "
            "needs no scaler, or with Synchronous()."
        )
    if os.environ.get("HOROVOD_ELASTIC") == "1":
        raise ValueError(
            f"{name}: expected a fixed number of ranks with 'halo': a partition is made for one. "
            "Start without Horovod Elastic, and resume from a checkpoint on another number."
        )
