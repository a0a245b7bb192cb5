"""What a planner is given, made from what the ranks have measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from statistics import median
from typing import Final

from ..planning.layers import ComputeModel, LayerProfile
from ..planning.link_model import LinkModel
from ..planning.plan import ExchangeKind, Plan, PlannedGroup
from ..planning.timeline import group_cost
from .compression import Lags, can_be_sparse
from .grouping import Group
from .parameter import ExchangedParameter
from .rank_measurements import Measured

# What is measured of preparation and decoding corrects the model by at most so much, either way
_MOST_CORRECTION: Final = 8.0


def plan_of(groups: Sequence[Group]) -> Plan:
    """Return the plan that groups follow."""
    kinds: dict[str, ExchangeKind] = {"topk": "allgather", "two-phase": "two-phase"}
    return Plan(
        tuple(
            PlannedGroup(
                tuple(each.name for each in group.members),
                kinds.get(group.kind, "dense"),
                group.density,
            )
            for group in groups
        )
    )


def layers_of(
    rank: Measured, parameters: Sequence[ExchangedParameter], policy: Lags, *, late: bool
) -> tuple[float, list[LayerProfile]]:
    """Return the seconds before backward, and the layers in the order of backward.

    Args:
        rank: Whose times.
        parameters: Of which layers are made; those whose gradients never came are the last.
        policy: Which of them may be sparse.
        late: Whether no exchange starts before the end of backward.
    """
    named = {each.name: each for each in parameters}
    times: dict[str, float] = {}
    before_s = 0.0  # of parameters that are not planned
    for name, seconds in rank.intervals_s.items():
        before_s += seconds
        if name in named:
            times[name], before_s = before_s, 0.0
    forward_s = next(iter(times.values()), 0.0)
    times |= dict.fromkeys(list(times)[:1], 0.0)
    if late:
        forward_s += sum(times.values())
        times = dict.fromkeys(times, 0.0)
    order = [*times, *(name for name in named if name not in times)]
    layers = [
        LayerProfile(
            name,
            named[name].num_elements,
            times.get(name, 0.0),
            can_be_sparse(named[name].tensor, policy.min_elements),
        )
        for name in order
    ]
    return forward_s, layers


def usual_costs(computes: Sequence[ComputeModel]) -> ComputeModel:
    """Return the median of each cost over ranks."""
    numbers = [asdict(each) for each in computes]
    return ComputeModel(**{key: median(each[key] for each in numbers) for key in numbers[0]})


def corrected_costs(
    compute: ComputeModel,
    ranks: Sequence[Measured],
    layers: Sequence[LayerProfile],
    current: Plan,
    link: LinkModel,
) -> ComputeModel:
    """Scale a model of costs to what preparation and decoding take with the current plan."""
    named = {layer.name: layer for layer in layers}
    alone = _without_messages(link)  # what is measured is what hooks do themselves
    costs = [
        group_cost(group, [named[name] for name in group.names], compute, alone)
        for group in current.groups
    ]
    prepare = _correction(
        median(rank.prepare_s for rank in ranks),
        sum(each.prepare_s + each.beside_s for each in costs),
    )
    decode = _correction(
        median(rank.decode_s for rank in ranks), sum(each.decode_s for each in costs)
    )
    return replace(
        compute,
        select_s_per_element=compute.select_s_per_element * prepare,
        select_s_per_selected=compute.select_s_per_selected * prepare,
        copy_s_per_element=compute.copy_s_per_element * prepare,
        group_s=compute.group_s * prepare,
        decode_s_per_element=compute.decode_s_per_element * decode,
        decode_s_per_selected=compute.decode_s_per_selected * decode,
    )


def _without_messages(link: LinkModel) -> LinkModel:
    """Return a link whose messages take nothing of the cores."""
    return LinkModel(
        link.num_ranks,
        *(
            replace(cost, cpu_s_per_byte=0.0)
            for cost in (link.allreduce, link.allgather, link.alltoall)
        ),
    )


def _correction(measured_s: float, predicted_s: float) -> float:
    if not (measured_s > 0 and predicted_s > 0):
        return 1.0
    return min(_MOST_CORRECTION, max(1 / _MOST_CORRECTION, measured_s / predicted_s))
