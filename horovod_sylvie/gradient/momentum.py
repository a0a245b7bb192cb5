"""Momentum correction: who keeps the momentum, and what it does to parameters that travel dense.

With `momentum="dgc"` the optimizer's own momentum moves in front of the selection (Lin et al.,
Deep Gradient Compression, ICLR 2018, section 3.2), so it is taken away from the optimizer; what
remains there is plain SGD. For parameters that travel dense the velocity is that of SGD. Weight
decay is a gradient that every rank knows: it has a velocity of its own, is never sent, and so
acts exactly as in a dense run.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..comm.protocol import Communicator
from .parameter import ExchangedParameter

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MomentumOptions:
    """What was taken from the optimizer for one parameter.

    Attributes:
        momentum: Factor of the velocity.
        weight_decay: L2 penalty.
    """

    momentum: float
    weight_decay: float


def take_momentum(group: dict[str, object], *, optimizer_name: str) -> MomentumOptions:
    """Take momentum and weight decay out of a parameter group of SGD.

    Args:
        group: The parameter group; its `momentum` and `weight_decay` become 0.
        optimizer_name: For messages.

    Raises:
        ValueError: If this is not SGD with momentum, or a kind of it that cannot be converted.
    """
    expected = "DistributedOptimizer: expected an optimizer whose momentum can move in front of "
    if optimizer_name != "SGD" or "dampening" not in group:
        raise ValueError(
            f"{expected}the selection for momentum='dgc', got {optimizer_name}. Use "
            "torch.optim.SGD(momentum=...), or momentum='post', which works with any optimizer."
        )
    if group["nesterov"] or group["dampening"] or group["maximize"]:
        raise ValueError(
            f"{expected}the selection for momentum='dgc', got SGD with nesterov, dampening or "
            "maximize. Leave them out, or use momentum='post'."
        )
    momentum, decay = group["momentum"], group["weight_decay"]
    if not (isinstance(momentum, float) and isinstance(decay, (int, float)) and momentum > 0):
        raise ValueError(
            f"{expected}the selection for momentum='dgc', got momentum={momentum!r} and "
            f"weight_decay={decay!r}. Give SGD a positive float, or use momentum='post'."
        )
    group["momentum"], group["weight_decay"] = 0.0, 0.0
    _logger.info(
        "horovod_sylvie: momentum=%g and weight_decay=%g of SGD now act before the selection; the "
        "optimizer's own are 0",
        momentum,
        decay,
    )
    return MomentumOptions(momentum, float(decay))


class DenseMomentum:
    """The velocities that act after the exchange.

    Args:
        parameter: Whose.
        options: Factor and weight decay.
        travels_dense: Whether its gradient needs a velocity too (a sparse one had it before).
    """

    def __init__(
        self, parameter: ExchangedParameter, options: MomentumOptions, *, travels_dense: bool
    ) -> None:
        self._parameter = parameter
        self._options = options
        self._dtype = torch.promote_types(parameter.tensor.dtype, torch.float32)
        zeros = torch.zeros(
            parameter.num_elements, dtype=self._dtype, device=parameter.tensor.device
        )
        self.velocity: Tensor | None = zeros if travels_dense else None
        self.decay: Tensor | None = torch.zeros_like(zeros) if options.weight_decay else None

    def apply(self, loss_scale: float) -> None:
        """Replace the exchanged gradient by its velocity. `loss_scale`: unit of the gradient."""
        gradient = self._parameter.gradient()
        if gradient is None:
            return
        total = gradient.to(self._dtype) / loss_scale
        if self.velocity is not None:
            total = self.velocity.mul_(self._options.momentum).add_(total)
        if self.decay is not None:
            weights = self._parameter.flatten(self._parameter.tensor)
            self.decay.mul_(self._options.momentum)
            self.decay.add_(weights, alpha=self._options.weight_decay)
            total = total + self.decay
        self._parameter.store(total * loss_scale)


def hide_momentum(
    param_groups: Sequence[dict[str, Any]], taken: Mapping[int, MomentumOptions]
) -> None:
    """Keep momentum and weight decay out of the optimizer, where something wrote them back.

    `hvd.broadcast_optimizer_state` does, with the values that `state_dict` shows.

    Args:
        param_groups: The optimizer's.
        taken: By parameter id.

    Raises:
        RuntimeError: Another value was written, as schedulers that cycle the momentum do.
    """
    for group in param_groups:
        own = taken.get(id(group["params"][0])) if group["params"] else None
        for key in ("momentum", "weight_decay"):
            if own is not None and group[key] not in {0, getattr(own, key)}:
                raise RuntimeError(
                    f"step: expected {key}=0 in SGD's parameter groups, got {group[key]}: with "
                    "momentum='dgc' it acts before the selection, and would act twice. Leave it to "
                    "DistributedOptimizer: OneCycleLR(..., cycle_momentum=False) for instance."
                )
            if own is not None:
                group[key] = 0.0


def show_momentum(
    saved_groups: Sequence[dict[str, Any]],
    param_groups: Sequence[dict[str, Any]],
    taken: Mapping[int, MomentumOptions],
) -> None:
    """Write what was taken into a state dict, so that it means the same to a plain optimizer."""
    for saved, group in zip(saved_groups, param_groups, strict=True):
        own = taken.get(id(group["params"][0])) if group["params"] else None
        if own is not None:
            saved["momentum"], saved["weight_decay"] = own.momentum, own.weight_decay


def share_momentum(comm: Communicator, momentum: Mapping[str, DenseMomentum]) -> None:
    """Give every rank rank 0's velocities after the exchange: ranks that are new have none.

    Args:
        comm: The communicator. Collective.
        momentum: By parameter name.
    """
    for name in sorted(momentum):
        for kind, tensor in (
            ("velocity", momentum[name].velocity),
            ("decay", momentum[name].decay),
        ):
            if tensor is not None:
                own = tensor if comm.rank == 0 else torch.zeros_like(tensor)
                tensor.copy_(comm.allreduce(own, name=f"sylvie.share.{kind}.{name}").wait())
