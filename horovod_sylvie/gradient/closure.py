"""Closures of `step(closure)`, as L-BFGS needs them: each evaluation is one of all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .gradient_exchange import GradientExchange


def synchronized_closure(
    closure: Callable[[], Any],
    synchronize: Callable[[], None],
    exchange: GradientExchange | None,
) -> Callable[[], Any]:
    """Return a closure after which gradients and loss are those of all ranks.

    Args:
        closure: Computes a loss and its gradients, on this rank.
        synchronize: Replaces them by the reduced ones.
        exchange: What reduces; None where nothing is.

    Raises:
        RuntimeError: Ranks may run out of batches: one that has would not know how many times the
            others evaluate.
    """
    if exchange is not None and exchange.options.uneven_batches:
        raise RuntimeError(
            "step: expected no closure with uneven_batches=True, got one. A rank that has joined "
            "cannot follow it: give every rank the same number of batches."
        )

    def synchronized() -> Any:
        loss = closure()
        synchronize()
        if exchange is None or not isinstance(loss, (Tensor, float)):
            return loss
        # An optimizer that looks at the loss must see the same one on every rank
        own = torch.as_tensor(loss, dtype=torch.float64).detach().reshape(1)
        total = exchange.comm.allreduce(own, name="sylvie.loss").wait()[0]
        mean = total * exchange.options.reduction.scale(exchange.comm.size)
        return mean.to(torch.as_tensor(loss).dtype)

    return synchronized
