"""Groups, kinds and densities together: least exposed time first, then as much gradient as fits.

First, with every sparse layer at the lowest density, the groups and their kinds (`search.py`).
Then, at no added time, groups become dense where that is free, and densities rise rung by rung, the
lowest first (`densities.py`).

Small and one-dimensional layers always travel whole: fused, or riding along with sparse layers,
whatever makes the step shorter (`small_layers.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from .densities import raise_densities
from .layers import ComputeModel, LayerProfile, places_of
from .link_model import LinkModel
from .plan import STEP_TOLERANCE, ExchangeKind, Plan, PlannedGroup
from .search import search_groups
from .small_layers import divisions, with_riders
from .timeline import simulate


@dataclass(frozen=True)
class PlanOptions:
    """What a plan may choose from.

    Attributes:
        densities: The ladder, ascending.
        kinds: How a group may travel.
        fused: Groups of the layers that cannot be sparse; they may be divided, and ride.
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

    def plans(small: Sequence[PlannedGroup], *others: list[PlannedGroup]) -> Iterator[_Judged]:
        sparse = search_groups(
            layers,
            compute,
            link,
            kinds=options.kinds,
            density=options.densities[0],
            fused=small,
        )
        for divided in divisions(layers, small) if others else [small]:
            for groups in _travelling(layers, [sparse, *others], divided):
                plan = _ordered(groups, place)
                yield _Judged(simulate(layers, plan, compute, link).step_s, plan, divided)

    place = places_of(layers)
    first = min(plans(options.fused, *_uniform(layers, options)), key=itemgetter(0))
    # The sparse ones again: between other small ones they may be grouped in another way
    best = min(first, *plans(first.small), key=itemgetter(0))
    return raise_densities(
        layers,
        compute,
        link,
        best.plan,
        densities=options.densities,
        may_be_dense="dense" in options.kinds,
        limit_s=best.step_s * (1.0 + options.tolerance),
    )


class _Judged(NamedTuple):
    """A plan, how long its step takes, and how its small layers were divided."""

    step_s: float
    plan: Plan
    small: Sequence[PlannedGroup]


def _uniform(layers: Sequence[LayerProfile], options: PlanOptions) -> list[list[PlannedGroup]]:
    """Return, for each kind, the groups of sparse layers in which each travels alone."""
    return [
        [
            PlannedGroup((layer.name,), kind, 1.0 if kind == "dense" else options.densities[0])
            for layer in layers
            if layer.can_be_sparse
        ]
        for kind in options.kinds
    ]


def _travelling(
    layers: Sequence[LayerProfile],
    bases: Sequence[Sequence[PlannedGroup]],
    small: Sequence[PlannedGroup],
) -> Iterator[Sequence[PlannedGroup]]:
    """Yield all groups of a plan, for each way in which small layers may travel with the others."""
    for base in bases:
        yield [*base, *small]
        for riding in (small, small[-1:]) if len(small) > 1 else (small,):
            fused = small[: len(small) - len(riding)]
            for waits in (False, True):
                yield [*with_riders(layers, base, riding, waits=waits), *fused]


def _ordered(groups: Sequence[PlannedGroup], place: Mapping[str, int]) -> Plan:
    return Plan(tuple(sorted(groups, key=lambda each: max(place[name] for name in each.names))))
