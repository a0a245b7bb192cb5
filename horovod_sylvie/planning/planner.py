"""Groups, kinds and densities together: least exposed time first, then as much gradient as fits.

First, with every sparse layer at the lowest density, the groups and their kinds: a search over the
layers in the order of backward that keeps the partial plans that no other one beats. Then, at no
added time, densities rise rung by rung, the lowest first, and groups become dense where that is
free too.

Small and one-dimensional layers always travel dense, fused; they are given.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from .layers import ComputeModel, LayerProfile
from .link_model import LinkModel
from .plan import ExchangeKind, Plan, PlannedGroup
from .timeline import group_cost, simulate

# Neighbours that may be merged into one group: more are never worth a later start
_MAX_MERGED = 24
# Partial plans kept at each layer
_BEAM = 16


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
    tolerance: float = 0.02


class _Partial(NamedTuple):
    """A plan for the first layers.

    Attributes:
        added_s: What preparation has added to backward.
        free_s: When the link is free.
        after_s: What is left to do after backward and all exchanges.
        group: The last group; None before the first.
        before: The plan without it.
    """

    added_s: float
    free_s: float
    after_s: float
    group: PlannedGroup | None
    before: _Partial | None

    def groups(self) -> list[PlannedGroup]:
        """Return its groups, in order."""
        found = []
        partial: _Partial | None = self
        while partial is not None and partial.group is not None:
            found.append(partial.group)
            partial = partial.before
        return found[::-1]


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
        A plan that, by `simulate`, takes no longer than every layer by itself dense, or at the
        lowest density.
    """
    candidates = [
        _search(layers, compute, link, options),
        *(_uniform(layers, options, kind, options.densities[0]) for kind in options.kinds),
    ]
    best = min(candidates, key=lambda plan: simulate(layers, plan, compute, link).step_s)
    return _raise_densities(layers, compute, link, options, best)


def _uniform(
    layers: Sequence[LayerProfile], options: PlanOptions, kind: ExchangeKind, density: float
) -> Plan:
    """Return the plan in which every layer travels alone, all in one way."""
    groups = (
        PlannedGroup((layer.name,), kind, 1.0 if kind == "dense" else density)
        for layer in layers
        if layer.can_be_sparse
    )
    return _ordered(layers, (*groups, *options.fused))


def _ordered(layers: Sequence[LayerProfile], groups: Sequence[PlannedGroup]) -> Plan:
    place = {layer.name: number for number, layer in enumerate(layers)}
    return Plan(tuple(sorted(groups, key=lambda each: max(place[name] for name in each.names))))


def _search(
    layers: Sequence[LayerProfile],
    compute: ComputeModel,
    link: LinkModel,
    options: PlanOptions,
) -> Plan:
    """Return the best plan at the lowest density, over contiguous groups of sparse layers."""
    sparse = [number for number, layer in enumerate(layers) if layer.can_be_sparse]
    arrival = _arrivals(layers, compute)
    partials: list[list[_Partial]] = [[] for _ in range(len(sparse) + 1)]
    partials[0] = [_Partial(0.0, 0.0, 0.0, None, None)]
    for begin in range(len(sparse)):
        kept = _prune(partials[begin], arrival[sparse[begin]])
        for end in range(begin + 1, min(len(sparse), begin + _MAX_MERGED) + 1):
            members = [layers[number] for number in sparse[begin:end]]
            ready = arrival[sparse[end - 1]]
            sizes = [layer.num_elements for layer in members]
            for group in _choices(members, options):
                cost = group_cost(group, sizes, compute, link)
                partials[end] += [
                    _Partial(
                        added := partial.added_s + cost.prepare_s,
                        max(ready + added, partial.free_s) + cost.exchange_s,
                        partial.after_s + cost.finish_s + cost.decode_s,
                        group,
                        partial,
                    )
                    for partial in kept
                ]
    backward_end = arrival[-1] if arrival else 0.0
    best = _prune(partials[-1], backward_end)[0]
    return _ordered(layers, (*best.groups(), *options.fused))


def _arrivals(layers: Sequence[LayerProfile], compute: ComputeModel) -> list[float]:
    """Return when each gradient is there, without what is prepared in between."""
    times = []
    now = compute.forward_s
    for layer in layers:
        now += layer.backward_s
        times.append(now)
    return times


def _choices(members: Sequence[LayerProfile], options: PlanOptions) -> Iterator[PlannedGroup]:
    names = tuple(layer.name for layer in members)
    for kind in options.kinds:
        yield PlannedGroup(names, kind, 1.0 if kind == "dense" else options.densities[0])


def _prune(partials: list[_Partial], arrival_s: float) -> list[_Partial]:
    """Keep the partial plans that no other beats, the most promising first.

    Args:
        partials: For the same layers.
        arrival_s: When the next gradient is there, or backward over, without preparation.
    """

    def outlook(partial: _Partial) -> tuple[float, float]:
        ends = max(arrival_s + partial.added_s, partial.free_s)
        return ends + partial.after_s, partial.added_s

    kept: list[_Partial] = []
    for partial in sorted(partials, key=outlook):
        if len(kept) == _BEAM:
            break
        if not any(
            other.added_s <= partial.added_s
            and other.free_s <= partial.free_s
            and other.after_s <= partial.after_s
            for other in kept
        ):
            kept.append(partial)
    return kept


def _raise_densities(
    layers: Sequence[LayerProfile],
    compute: ComputeModel,
    link: LinkModel,
    options: PlanOptions,
    plan: Plan,
) -> Plan:
    """Raise densities as long as the step takes no longer; the lowest first."""
    groups = list(plan.groups)
    limit = simulate(layers, plan, compute, link).step_s * (1.0 + options.tolerance)
    pending = [
        (group.density, number) for number, group in enumerate(groups) if group.kind != "dense"
    ]
    heapq.heapify(pending)
    while pending:
        _, number = heapq.heappop(pending)
        for better in _denser(groups[number], options):
            tried = [*groups[:number], better, *groups[number + 1 :]]
            if simulate(layers, Plan(tuple(tried)), compute, link).step_s <= limit:
                groups = tried
                if better.kind != "dense":
                    heapq.heappush(pending, (better.density, number))
                break
    return Plan(tuple(groups))


def _denser(group: PlannedGroup, options: PlanOptions) -> Iterator[PlannedGroup]:
    """Yield what would send more of a group, the most first: dense, then one rung up."""
    if "dense" in options.kinds:
        yield replace(group, kind="dense", density=1.0)
    above = [density for density in options.densities if density > group.density]
    if above:
        yield replace(group, density=above[0])
