"""What the exchange of gradients costs and keeps, as numbers, scalars and one table.

Sampled every few steps where that was asked for: the error that selection makes on this rank, and
delta of Assumption 1 of the LAGS paper (Shi et al., ECAI 2020), which compares what top-k leaves
out of the sum over ranks, residuals included, with what a random choice of as many elements would:

    delta = || s - sum_p sent_p ||^2 / ((1 - K/D) || s ||^2),   s = sum_p (residual_p + gradient_p)

The theory asks for delta <= 1. Its sample costs one dense allreduce per layer.

Shapes: D elements of a parameter, K selected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from ..comm.protocol import Communicator
from .adaptive_plan import AdaptivePlan, PlanReport
from .exchange import Exchange
from .selected_exchange import SelectedExchange


@dataclass(frozen=True)
class LayerSample:
    """One layer in one sampled step.

    Attributes:
        step: Which.
        density: K / D.
        residual_ratio: ||residual|| / ||gradient||, after selection, on this rank.
        error: ||residual||^2 / ||residual + sent||^2 on this rank: what selection left behind.
        delta: Assumption 1's; see above. The same on every rank.
    """

    step: int
    density: float
    residual_ratio: float
    error: float
    delta: float


@dataclass(frozen=True)
class GroupCost:
    """What one group costs per step, on this rank.

    Attributes:
        name: Of the group.
        kind: Of the exchange.
        num_elements: Of all its parameters.
        num_selected: Of those, how many travel; all of them where it is dense.
        payload_bytes: Bytes handed to Horovod.
        bytes_sent: Bytes that Horovod's ring algorithms send for them.
        selection_s: Seconds of preparing it.
        waiting_s: Seconds of waiting for other ranks.
        decoding_s: Seconds of turning it into gradients.
    """

    name: str
    kind: str
    num_elements: int
    num_selected: int
    payload_bytes: float
    bytes_sent: float
    selection_s: float
    waiting_s: float
    decoding_s: float


@dataclass(frozen=True)
class Telemetry:
    """A report: means per step since the start, or since the newest plan, and the newest samples.

    Attributes:
        num_steps: Steps exchanged.
        groups: By group.
        samples: By layer; empty without sampling.
        plan: Where densities adapt.
        beside: Of other traffic that the optimizer owns, by name: totals since the start.
    """

    num_steps: int
    groups: tuple[GroupCost, ...]
    samples: dict[str, LayerSample]
    plan: PlanReport | None = None
    beside: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, for JSON."""
        return {
            "num_steps": self.num_steps,
            **self._totals(),
            "groups": [asdict(group) for group in self.groups],
            "plan": None if self.plan is None else asdict(self.plan),
            "layers": {name: asdict(sample) for name, sample in self.samples.items()},
            "beside": dict(self.beside),
        }

    def scalars(self) -> dict[str, float]:
        """Return what is worth a curve, by tag, as `SummaryWriter.add_scalar` takes it."""
        scalars = {f"sylvie/{name}": value for name, value in self._totals().items()}
        for name, sample in self.samples.items():
            scalars[f"sylvie/residual_ratio/{name}"] = sample.residual_ratio
            scalars[f"sylvie/error/{name}"] = sample.error
            scalars[f"sylvie/delta/{name}"] = sample.delta
        if self.plan is not None:
            scalars["sylvie/predicted_step_s"] = self.plan.predicted_step_s
            scalars["sylvie/plan_changes"] = float(self.plan.num_changes)
        return scalars | {f"sylvie/{name}": value for name, value in self.beside.items()}

    def _totals(self) -> dict[str, float]:
        def total(field: str) -> float:
            return float(sum(getattr(group, field) for group in self.groups))

        return {
            "payload_bytes_per_step": total("payload_bytes"),
            "bytes_sent_per_step": total("bytes_sent"),
            "selected_fraction": total("num_selected") / max(1.0, total("num_elements")),
            "selection_s": total("selection_s"),
            "waiting_s": total("waiting_s"),
            "decoding_s": total("decoding_s"),
        }

    def __str__(self) -> str:
        """Return a table: a line per group, and the totals."""
        header = (
            f"{'group':<36}{'kind':<11}{'elements':>11}{'selected':>10}{'sent/step':>12}"
            f"{'select':>9}{'wait':>9}{'decode':>9}  ms"
        )
        lines = [header]
        for group in self.groups:
            times = (group.selection_s, group.waiting_s, group.decoding_s)
            name = group.name if len(group.name) < 36 else f"{group.name[:33]}.."
            lines.append(
                f"{name:<36}{group.kind:<11}{group.num_elements:>11,}{group.num_selected:>10,}"
                f"{_bytes(group.bytes_sent):>12}" + "".join(f"{1e3 * s:>9.3f}" for s in times)
            )
        totals = self._totals()
        lines.append(
            f"{self.num_steps} steps; {_bytes(totals['bytes_sent_per_step'])} sent per step and "
            f"rank, {100 * totals['selected_fraction']:.2f} % of the elements"
        )
        if self.plan is not None and self.plan.plan is not None:
            lines.append(
                f"plan {self.plan.digest[:8]} after {self.plan.num_changes} changes: a step takes "
                f"{1e3 * self.plan.predicted_step_s:.1f} ms by its model, and took "
                f"{1e3 * self.plan.measured_step_s:.1f} ms before the newest decision"
            )
        for name, sample in self.samples.items():
            lines.append(
                f"{name}: residual / gradient {sample.residual_ratio:.2f}, error "
                f"{sample.error:.3f}, delta {sample.delta:.3f} (step {sample.step})"
            )
        lines += [f"{name}: {value:,.0f}" for name, value in self.beside.items()]
        return "\n".join(lines)


def report(
    exchanges: Sequence[Exchange],
    samples: dict[str, LayerSample],
    adaptive: AdaptivePlan | None = None,
) -> Telemetry:
    """Make a report of exchanges, and of their plan where densities adapt."""
    groups = []
    for exchange in exchanges:
        cost = exchange.cost
        steps = max(1, cost.num_steps)
        num_elements = sum(parameter.num_elements for parameter in exchange.parameters)
        selected = num_elements
        if isinstance(exchange, SelectedExchange):
            selected = sum(exchange.num_selected)
            selected += num_elements - sum(each.num_elements for each in exchange.selected)
        groups.append(
            GroupCost(
                exchange.name,
                type(exchange).__name__.removesuffix("Exchange"),
                num_elements,
                selected,
                cost.payload_bytes / steps,
                cost.bytes_sent / steps,
                cost.selection_s / steps,
                cost.waiting_s / steps,
                cost.decoding_s / steps,
            )
        )
    plan = None if adaptive is None else adaptive.report
    num_steps = max((exchange.cost.num_steps for exchange in exchanges), default=0)
    return Telemetry(num_steps, tuple(groups), dict(samples), plan)


def sample_layers(
    comm: Communicator,
    exchanges: Sequence[Exchange],
    *,
    step: int,
    scale: float,
) -> dict[str, LayerSample]:
    """Measure compression error and delta of every sparsified layer, after a step was applied.

    Args:
        comm: The communicator. Collective.
        exchanges: All of the step.
        step: Which step it is.
        scale: What the sum over ranks was multiplied by to become the gradient.
    """
    samples = {}
    for exchange in exchanges:
        if not isinstance(exchange, SelectedExchange):
            continue
        sent, gradient_norms = exchange.sent_norms(), exchange.gradient_norms.tolist()
        for number, parameter in enumerate(exchange.selected):
            residual = exchange.feedback[number].residual
            pending = exchange.pending(number)
            left = comm.allreduce(pending, name=f"sylvie.delta.{parameter.name}").wait()
            gradient = parameter.gradient()
            assert gradient is not None, "the step was applied"
            density = exchange.num_selected[number] / parameter.num_elements
            own = _norm(residual)
            whole = own**2 + sent[number] ** 2
            samples[parameter.name] = LayerSample(
                step=step,
                density=density,
                residual_ratio=own / max(gradient_norms[number], 1e-30),
                error=own**2 / max(whole, 1e-30),
                delta=_delta(left, gradient.float() / scale, density),
            )
    return samples


def _delta(left: Tensor, sent: Tensor, density: float) -> float:
    """Return delta from the sum of residuals and the sum of what was sent, both [D]."""
    chance = (1.0 - density) * _norm(left + sent) ** 2
    return _norm(left) ** 2 / chance if chance > 0 else 0.0


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor))


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
