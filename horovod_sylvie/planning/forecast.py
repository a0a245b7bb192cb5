"""What a model's step would take, by way of exchange: the figures behind `plan`.

Every way is judged by the same model (`timeline.py`), each at its best: dense gradients are merged
as the planner would merge them, since Horovod fuses what is in flight together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .layers import ComputeModel, LayerProfile
from .link_model import LinearCost, LinkModel
from .plan import (
    FUSED_ELEMENTS,
    WORTHWHILE_GAIN,
    Plan,
    PlannedGroup,
    kinds_between,
    ladder,
)
from .planner import PlanOptions, make_plan
from .timeline import Timeline, group_cost, simulate, speed_bound


@dataclass(frozen=True)
class GroupForecast:
    """One group of the chosen plan.

    Attributes:
        group: Which layers, and how they travel.
        num_elements: Of all of them.
        backward_s: Seconds of backward that they take.
        dense_s: Seconds on the link if they travel dense.
        sparse_s: Seconds on the link at the lowest density.
    """

    group: PlannedGroup
    num_elements: int
    backward_s: float
    dense_s: float
    sparse_s: float


@dataclass(frozen=True)
class Forecast:
    """What a model's step would take.

    Attributes:
        num_ranks: P.
        compute_s: Forward and backward alone.
        steps_s: Seconds of a step, by way of exchange.
        bound: S_max: how much faster than without any overlap a dense step can be.
        groups: Of the chosen plan.
        timeline: Of the chosen plan.
    """

    num_ranks: int
    compute_s: float
    steps_s: dict[str, float]
    bound: float
    groups: tuple[GroupForecast, ...]
    timeline: Timeline

    @property
    def best_dense_s(self) -> float:
        """Seconds of the fastest step that sends everything."""
        return min(self.steps_s["dense float32"], self.steps_s["dense float16"])

    @property
    def pays(self) -> bool:
        """Whether sparse gradients are worth it."""
        return self.best_dense_s > WORTHWHILE_GAIN * self.steps_s["planned"]


def forecast(
    layers: Sequence[LayerProfile],
    compute: ComputeModel,
    link: LinkModel,
    *,
    min_density: float = 0.001,
    max_density: float = 0.05,
) -> Forecast:
    """Predict a step for each way of exchange.

    Args:
        layers: In the order of backward.
        compute: Costs of a rank.
        link: Costs between ranks.
        min_density: Lowest density of the planned way.
        max_density: Highest.
    """
    fused = fuse_small(layers)
    kinds = kinds_between(link.num_ranks)
    options = PlanOptions(ladder(min_density, max_density), kinds, fused)
    plan = make_plan(layers, compute, link, options)
    dense = make_plan(layers, compute, link, replace(options, kinds=("dense",)))
    half = replace(link, allreduce=_half(link.allreduce))
    steps = {
        "dense float32": simulate(layers, dense, compute, link).step_s,
        "dense float16": simulate(layers, dense, compute, half).step_s,
    }
    for density in (0.01, 0.001):
        uniform = _uniform(layers, fused, density)
        name = f"top-k {100 * density:g} %"
        steps[name] = simulate(layers, uniform, compute, link).step_s
    timeline = simulate(layers, plan, compute, link)
    steps["planned"] = timeline.step_s
    backward_s = sum(layer.backward_s for layer in layers)
    whole = link.allreduce.seconds(4.0 * sum(layer.num_elements for layer in layers))
    return Forecast(
        link.num_ranks,
        timeline.compute_s,
        steps,
        speed_bound(compute.forward_s, backward_s, whole),
        tuple(_group_forecast(group, layers, compute, link, min_density) for group in plan.groups),
        timeline,
    )


def fuse_small(layers: Sequence[LayerProfile]) -> tuple[PlannedGroup, ...]:
    """Group the layers that cannot be sparse, as the exchange does."""
    groups: list[PlannedGroup] = []
    names: list[str] = []
    total = 0
    for layer in layers:
        if not layer.can_be_sparse:
            names.append(layer.name)
            total += layer.num_elements
            if total >= FUSED_ELEMENTS:
                groups.append(PlannedGroup(tuple(names), "dense"))
                names, total = [], 0
    if names:
        groups.append(PlannedGroup(tuple(names), "dense"))
    return tuple(groups)


def _uniform(layers: Sequence[LayerProfile], fused: Sequence[PlannedGroup], density: float) -> Plan:
    """Return the plan of `Compression.topk(density)`: each layer by itself."""
    alone = [
        PlannedGroup((layer.name,), "allgather", density) for layer in layers if layer.can_be_sparse
    ]
    return Plan((*alone, *fused))


def _half(cost: LinearCost) -> LinearCost:
    return replace(cost, beta_s_per_byte=cost.beta_s_per_byte / 2)


def _group_forecast(
    group: PlannedGroup,
    layers: Sequence[LayerProfile],
    compute: ComputeModel,
    link: LinkModel,
    min_density: float,
) -> GroupForecast:
    members = [layer for layer in layers if layer.name in group.names]
    dense = PlannedGroup(group.names, "dense")
    sparse = PlannedGroup(group.names, "allgather", min_density)
    return GroupForecast(
        group,
        sum(layer.num_elements for layer in members),
        sum(layer.backward_s for layer in members),
        group_cost(dense, members, compute, link).exchange_s,
        group_cost(sparse, members, compute, link).exchange_s,
    )
