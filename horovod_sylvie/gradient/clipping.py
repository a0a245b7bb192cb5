"""Clipping that is safe with error feedback: of the new gradient, before it meets a residual.

Clipping residual + gradient would throw away what is pending, again in every step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .parameter import ExchangedParameter


def clip_factor(
    parameters: Sequence[ExchangedParameter], max_norm: float | None, *, loss_scale: float
) -> float:
    """Return what local gradients are multiplied by so that their norm is at most `max_norm`.

    Args:
        parameters: Whose gradients make up the norm: the Euclidean norm of all their elements.
        max_norm: The limit; None for none.
        loss_scale: What the gradients are multiplied by already.

    Returns:
        min(1, max_norm / (norm + 1e-6)), as `torch.nn.utils.clip_grad_norm_`; 0 where the norm is
        not finite: an Inf or a NaN stays one, and nothing else of that gradient counts.
    """
    if max_norm is None:
        return 1.0
    norms = []
    for parameter in parameters:
        grad = parameter.tensor.grad
        if grad is not None:
            values = grad.coalesce().values() if grad.is_sparse else grad
            norms.append(torch.linalg.vector_norm(values.detach(), dtype=torch.float64))
    if not norms:
        return 1.0
    # Read once: on a GPU each reading waits for the device
    norm = float(torch.linalg.vector_norm(torch.stack(norms))) / loss_scale
    return min(1.0, max_norm / (norm + 1e-6)) if math.isfinite(norm) else 0.0


def clip_local(
    parameters: Sequence[ExchangedParameter], max_norm: float, *, loss_scale: float
) -> None:
    """Clip the gradients of a run that exchanges none, in place; see `clip_factor`."""
    factor = clip_factor(parameters, max_norm, loss_scale=loss_scale)
    for parameter in parameters:
        if parameter.tensor.grad is not None and factor < 1.0:
            parameter.tensor.grad.mul_(factor)
