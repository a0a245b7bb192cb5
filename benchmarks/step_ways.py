"""The ways of exchange that `step.py` compares."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from step_ddp import DDP_WAYS, bytes_of_ddp
from torch import nn

import horovod_sylvie as hvs

NO_EXCHANGE: Final = "no exchange"
STOCK_HOROVOD: Final = "Horovod dense"
LAGS: Final = "LAGS"
_COMPRESSIONS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "dense float32": hvs.Compression.none,
        "dense float16": hvs.Compression.fp16,
        "top-k 1 %": hvs.Compression.topk(0.01),
        "top-k 0.1 %": hvs.Compression.topk(0.001),
        LAGS: hvs.Compression.lags(min_density=0.001, max_density=0.05),
    }
)
_SPARSE: Final = ("top-k 1 %", "top-k 0.1 %", LAGS)
WAYS: Final = (NO_EXCHANGE, STOCK_HOROVOD, *DDP_WAYS, *_COMPRESSIONS)


def make_optimizer(
    way: str,
    model: nn.Module,
    comm: hvs.Communicator,
    plain: torch.optim.Optimizer | None = None,
) -> Any:
    """Make an optimizer whose step exchanges the gradients of a model in one of the ways.

    Where none is given, its own step is the cheapest there is, SGD without momentum, and leaves the
    weights nearly as they are.

    Args:
        way: One of `WAYS`. In those of DDP it is backward that exchanges.
        model: Whose gradients.
        comm: Of all ranks; stock Horovod has its own.
        plain: Its own step, of SGD with momentum, which sparse ways correct.

    Raises:
        ValueError: If there is no such way.
    """
    corrects = plain is not None and way in _SPARSE
    plain = plain or torch.optim.SGD(model.parameters(), lr=1e-6)
    # Ways have names of their own, so that Horovod's cache of responses holds all of them
    named = [(f"{way}/{name}", each) for name, each in model.named_parameters()]
    if way == NO_EXCHANGE or way in DDP_WAYS:
        return plain
    if way == STOCK_HOROVOD:
        import horovod.torch as hvd

        return hvd.DistributedOptimizer(plain, named)
    if way not in _COMPRESSIONS:
        raise ValueError(f"make_optimizer: expected one of {WAYS} for 'way', got {way!r}.")
    return hvs.DistributedOptimizer(
        plain,
        named,
        compression=_COMPRESSIONS[way],
        momentum="dgc" if corrects else "post",
        comm=comm,
    )


def bytes_of(way: str, optimizer: Any, model: nn.Module, num_ranks: int) -> float:
    """Return the bytes that a rank sends for one step, as rings send them."""
    if way == NO_EXCHANGE:
        return 0.0
    if way in DDP_WAYS:
        return bytes_of_ddp(way, model, num_ranks)
    if way == STOCK_HOROVOD:
        num_elements = sum(each.numel() for each in model.parameters())
        return 2 * (num_ranks - 1) / num_ranks * 4.0 * num_elements
    return float(sum(group.bytes_sent for group in optimizer.telemetry().groups))


def predicted_of(optimizer: Any) -> float | None:
    """Return the seconds of a step that the optimizer's own plan predicts, or None without one."""
    report = optimizer.telemetry().plan if hasattr(optimizer, "telemetry") else None
    return None if report is None or report.plan is None else float(report.predicted_step_s)
