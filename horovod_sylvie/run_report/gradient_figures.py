"""What the gradients of one epoch cost a rank: differences of what its optimizer reports.

Shapes: P ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..gradient.telemetry import GroupCost, Telemetry

_FIELDS: Final = ("bytes_sent", "selection_s", "waiting_s", "decoding_s")


@dataclass(frozen=True)
class GradientFigures:
    """Means of the steps of an epoch: those since the newest plan, where plans change.

    Attributes:
        num_steps: Steps that they are means of.
        bytes_sent: Per step.
        bytes_dense: What a ring allreduce of all elements as float32 sends, per step.
        selecting_s: Seconds per step of preparing what is sent.
        waiting_s: Seconds per step of waiting for other ranks.
        decoding_s: Seconds per step of turning what came into gradients.
        density: Share of the elements that travelled, at the end of the epoch.
        group_densities: The same by group.
        deltas: Assumption 1's delta by layer, where it was sampled.
        plan: The plan's digest; empty where densities do not adapt.
    """

    num_steps: int
    bytes_sent: float
    bytes_dense: float
    selecting_s: float
    waiting_s: float
    decoding_s: float
    density: float
    group_densities: Mapping[str, float]
    deltas: Mapping[str, float]
    plan: str


class GradientReader:
    """Reads one optimizer's telemetry, epoch by epoch.

    Args:
        num_ranks: P.

    Attributes:
        groups: The newest groups.
    """

    def __init__(self, num_ranks: int) -> None:
        self.groups: tuple[GroupCost, ...] = ()
        self._num_ranks = num_ranks
        self._optimizer: object = None
        self._before: Telemetry | None = None

    def read(self, optimizer: Any) -> GradientFigures | None:
        """Return the figures since the last call, or since the start; None without a step.

        Raises:
            TypeError: It is not an optimizer that reports.
        """
        telemetry = optimizer.telemetry() if hasattr(optimizer, "telemetry") else None
        if not isinstance(telemetry, Telemetry):
            raise TypeError(
                "add_epoch: expected an optimizer of hvs.DistributedOptimizer for 'optimizer', got "
                f"{type(optimizer).__name__}. Wrap it, or leave it out."
            )
        before = self._before if optimizer is self._optimizer else None
        if before is not None and _begins_anew(before, telemetry):
            before = None
        self._optimizer, self._before = optimizer, telemetry
        num_steps = telemetry.num_steps - (0 if before is None else before.num_steps)
        if num_steps == 0 or not telemetry.groups:
            return None
        self.groups = telemetry.groups
        means = {field: _mean(field, before, telemetry) for field in _FIELDS}
        num_elements = sum(each.num_elements for each in telemetry.groups)
        num_selected = sum(each.num_selected for each in telemetry.groups)
        return GradientFigures(
            num_steps=num_steps,
            bytes_sent=means["bytes_sent"],
            bytes_dense=dense_bytes(num_elements, self._num_ranks),
            selecting_s=means["selection_s"],
            waiting_s=means["waiting_s"],
            decoding_s=means["decoding_s"],
            density=num_selected / max(1, num_elements),
            group_densities={
                each.name: each.num_selected / max(1, each.num_elements)
                for each in telemetry.groups
            },
            deltas={name: sample.delta for name, sample in telemetry.samples.items()},
            plan="" if telemetry.plan is None else telemetry.plan.digest,
        )


def dense_bytes(num_elements: int, num_ranks: int) -> float:
    """Return what each rank sends in a ring allreduce of float32: 2 (P-1)/P of the bytes."""
    return 2 * (num_ranks - 1) / num_ranks * 4 * num_elements


def _begins_anew(before: Telemetry, now: Telemetry) -> bool:
    """Return whether the report now is of steps behind the one before: costs start with a plan."""
    plans = [
        None if each.plan is None else (each.plan.num_changes, each.plan.digest)
        for each in (before, now)
    ]
    return plans[0] != plans[1] or now.num_steps < before.num_steps


def _mean(field: str, before: Telemetry | None, now: Telemetry) -> float:
    """Return a figure per step, of all groups, since the report before."""

    def total(telemetry: Telemetry) -> float:
        per_step: float = sum(getattr(each, field) for each in telemetry.groups)
        return per_step * telemetry.num_steps

    if before is None:
        return total(now) / now.num_steps
    return max(0.0, (total(now) - total(before)) / (now.num_steps - before.num_steps))
