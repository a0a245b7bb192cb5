"""How the exchange of a step ends: gradients to apply, a step to skip, or an error everywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .exchange import Exchange
from .parameter import ExchangedParameter


class NonFiniteGradientError(RuntimeError):
    """Say that a rank's gradient has an Inf or a NaN; raised on every rank, nothing is applied."""


@dataclass(frozen=True)
class Outcome:
    """How a step's exchange ended; the same on every rank.

    Attributes:
        active: Which ranks had a batch. P entries
        overflow: Whether a gradient was not finite and a GradScaler is to skip the step.
        hyperparameters: Of the first rank that had a batch.
    """

    active: tuple[bool, ...]
    overflow: bool = False
    hyperparameters: tuple[float, ...] = ()


def receive(exchanges: Sequence[Exchange], num_active: int, *, refuses: bool) -> list[str]:
    """Wait for each group of a step, and decode it while others are on their way.

    Args:
        exchanges: As they were started; none of them is committed.
        num_active: Ranks that had a batch.
        refuses: Whether a gradient that is not finite is a reason to take the step back.

    Returns:
        What that reason is; what follows the first fault is not decoded.
    """
    faults: list[str] = []
    for exchange in exchanges:
        found = exchange.wait()
        faults += found if refuses else []
        if not faults:
            exchange.decode(num_active)
    return faults


def refuse(faults: Sequence[str], *, rank: int, step: int) -> NonFiniteGradientError:
    """Return the error for gradients that are not finite, where no GradScaler skips the step.

    Args:
        faults: What is not finite, the same on every rank.
        rank: This rank.
        step: Optimizer step.
    """
    return NonFiniteGradientError(
        f"rank {rank}: Inf or NaN in the gradient of {'; '.join(faults)} at step {step}. No "
        "gradient of this step was applied on any rank, and the residuals are as they should be: "
        "skip this batch, or lower the learning rate. With a GradScaler, pass it: "
        "DistributedOptimizer(..., scaler=scaler)."
    )


def overflow_all(parameters: Sequence[ExchangedParameter]) -> None:
    """Make every gradient NaN: the scaler of every rank must find a fault, also where none was."""
    for each in parameters:
        each.tensor.grad = torch.full_like(each.tensor, math.nan, requires_grad=False)
