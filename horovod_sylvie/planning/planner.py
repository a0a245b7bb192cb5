"""Groups, kinds and densities together: least exposed time first, then as much gradient as fits.

First, with every sparse layer at the lowest density, the groups and their kinds (`search.py`).
Then, at no added time, groups become dense where that is free, and densities rise rung by rung, the
lowest first (`densities.py`).

Small and one-dimensional layers always travel whole: fused, in groups that are given, or riding
along with sparse layers, where that makes the step shorter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .densities import raise_densities
from .layers import ComputeModel, LayerProfile
from .link_model import LinkModel
from .plan import STEP_TOLERANCE, ExchangeKind, Plan, PlannedGroup
from .search import search_groups
from .timeline import simulate


@dataclass(frozen=True)
class PlanOptions:
    """What a plan may choose from.

    Attributes:
        densities: The ladder, ascending.
        kinds: How a group may travel.
        fused: Groups of the layers that cannot be sparse, given.
        tolerance: What counts as no added time, as a share of the step: every selected element
            costs some.
    """

    densities: tuple[float, ...]
    kinds: tuple[ExchangeKind, ...] = ("dense", "allgather")
    fused: tuple[PlannedGroup, ...] = ()
    tolerance: float = STEP_TOLERANCE


def make_plan(
    layers: Sequence[LayerProfile],
    compute: ComputeModel,
    link: LinkModel,
    options: PlanOptions,
) -> Plan:
    """Plan one model.

    Args:
        layers: In the order of backward.
        compute: Costs of this rank.
        link: Costs between ranks.
        options: What to choose from.

    Returns:
        A plan that, by `simulate` and within the tolerance, takes no longer than every layer by
        itself dense, or at the lowest density.
    """
    found = search_groups(
        layers,
        compute,
        link,
        kinds=options.kinds,
        density=options.densities[0],
        fused=options.fused,
    )
    candidates = [
        _ordered(layers, (*found, *options.fused)),
        *(_uniform(layers, options, kind) for kind in options.kinds),
    ]
    candidates += [
        _riding(layers, plan, options.fused, waits=waits)
        for plan in candidates
        for waits in (False, True)
    ]
    steps = [simulate(layers, plan, compute, link).step_s for plan in candidates]
    best_s = min(steps)
    return raise_densities(
        layers,
        compute,
        link,
        candidates[steps.index(best_s)],
        densities=options.densities,
        may_be_dense="dense" in options.kinds,
        limit_s=best_s * (1.0 + options.tolerance),
    )


def _uniform(layers: Sequence[LayerProfile], options: PlanOptions, kind: ExchangeKind) -> Plan:
    """Return the plan in which every layer travels alone, all in one way."""
    density = 1.0 if kind == "dense" else options.densities[0]
    groups = (PlannedGroup((layer.name,), kind, density) for layer in layers if layer.can_be_sparse)
    return _ordered(layers, (*groups, *options.fused))


def _riding(
    layers: Sequence[LayerProfile], plan: Plan, fused: Sequence[PlannedGroup], *, waits: bool
) -> Plan:
    """Return the plan in which small layers ride along with the next sparse ones that are sent.

    Args:
        layers: In the order of backward.
        plan: Which.
        fused: Its groups of small layers.
        waits: Whether the last sparse layers wait for small ones that come after them.
    """
    place = {layer.name: number for number, layer in enumerate(layers)}
    small = {name for group in fused for name in group.names}
    carriers = [group for group in plan.groups if group.kind == "allgather"]
    if not carriers:
        return plan
    riders: list[list[str]] = [[] for _ in carriers]
    left: list[str] = []
    ends = [max(place[name] for name in group.names) for group in carriers]
    for name in sorted(small, key=place.__getitem__):
        number = bisect_left(ends, place[name])
        number = min(number, len(carriers) - 1) if waits else number
        (riders[number] if number < len(carriers) else left).append(name)
    groups = [group for group in plan.groups if group.kind != "allgather" and group not in fused]
    groups += [
        replace(carrier, names=(*carrier.names, *names))
        for carrier, names in zip(carriers, riders, strict=True)
    ]
    if left:
        groups.append(PlannedGroup(tuple(left), "dense"))
    return _ordered(layers, groups)


def _ordered(layers: Sequence[LayerProfile], groups: Sequence[PlannedGroup]) -> Plan:
    place = {layer.name: number for number, layer in enumerate(layers)}
    return Plan(tuple(sorted(groups, key=lambda each: max(place[name] for name in each.names))))
