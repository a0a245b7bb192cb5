"""One step as a plan lets it run: what is ready when, what is sent when, and what is exposed.

The model: backward and what hooks prepare share the rank's own thread, one after the other. On the
host large groups are selected from in a second thread, one after the other, beside it. Collectives
share the link, one after the other, in the order in which groups become ready
(Horovod runs one at a time). What has come is decoded when all of it has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .layers import ComputeModel, LayerProfile, places_of
from .link_model import LinkModel
from .plan import SELECTED_BYTES, ExchangeKind, Plan, PlannedGroup, num_selected

_DENSE_BYTES = 4


class GroupCost(NamedTuple):
    """What one group costs. A tuple, since a planner makes thousands.

    Attributes:
        prepare_s: In backward: selecting, or copying, and what messages take of the cores.
        beside_s: Beside backward, after that: selecting.
        exchange_s: On the link, first phase.
        finish_s: Second phase, at the owners and on the link; 0 where there is only one.
        decode_s: After all has come.
        nbytes: What a rank hands over.
    """

    prepare_s: float
    beside_s: float
    exchange_s: float
    finish_s: float
    decode_s: float
    nbytes: float


@dataclass(frozen=True)
class GroupSpan:
    """When one group was where, in seconds from the start of the step.

    Attributes:
        group: Which.
        arrival_s: Its last gradient is there.
        ready_s: Its payload is ready.
        start_s: Its exchange starts.
        end_s: Its exchange ends.
    """

    group: PlannedGroup
    arrival_s: float
    ready_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Timeline:
    """One step.

    Attributes:
        spans: By group, in the order of exchange.
        backward_end_s: Backward, with what hooks prepare, is over.
        exchange_end_s: The last exchange is over.
        step_s: The step is over.
        compute_s: What forward and backward alone take.
    """

    spans: tuple[GroupSpan, ...]
    backward_end_s: float
    exchange_end_s: float
    step_s: float
    compute_s: float

    @property
    def exposed_s(self) -> float:
        """How long the rank only waits."""
        return max(0.0, self.exchange_end_s - self.backward_end_s)


def group_cost(
    group: PlannedGroup, members: Sequence[LayerProfile], compute: ComputeModel, link: LinkModel
) -> GroupCost:
    """Return what a group costs whose layers are `members`."""
    num_elements = sum(layer.num_elements for layer in members)
    num_sent = sum(
        # What rides along travels whole: an element is as many bytes as a selected one
        num_selected(layer.num_elements, group.density if layer.can_be_sparse else 1.0)
        for layer in members
    )
    return cost_of_totals(group.kind, len(members), num_elements, num_sent, compute, link)


def cost_of_totals(
    kind: ExchangeKind,
    num_layers: int,
    num_elements: int,
    num_sent: int,
    compute: ComputeModel,
    link: LinkModel,
) -> GroupCost:
    """Return what a group costs, from sums over its layers.

    Args:
        kind: How it travels.
        num_layers: How many layers; one that is dense is exchanged in place, without copies.
        num_elements: Of all layers.
        num_sent: What a rank sends of all layers; not read where they travel dense.
        compute: Costs of this rank.
        link: Costs between ranks.
    """
    if kind == "dense":
        nbytes = float(num_elements * _DENSE_BYTES)
        copy_s = num_elements * compute.copy_s_per_element if num_layers > 1 else 0.0
        prepare_s = copy_s + compute.group_s + nbytes * link.allreduce.cpu_s_per_byte
        return GroupCost(prepare_s, 0.0, link.allreduce.seconds(nbytes), 0.0, copy_s, nbytes)
    nbytes = float(num_sent * SELECTED_BYTES)
    prepare_s, beside_s = compute.group_s, _select_s(num_elements, num_sent, compute)
    if num_elements < compute.beside_elements:
        prepare_s, beside_s = prepare_s + beside_s, 0.0
    if kind == "allgather":
        prepare_s += nbytes * link.allgather.cpu_s_per_byte
        decode_s = _decode_s(num_elements, num_sent * link.num_ranks, compute)
        return GroupCost(prepare_s, beside_s, link.allgather.seconds(nbytes), 0.0, decode_s, nbytes)
    prepare_s += nbytes * link.alltoall.cpu_s_per_byte
    # The owner of a P-th adds what all ranks selected of it, and selects again, a P-th as many
    share = 1.0 / link.num_ranks
    owner_s = (
        _decode_s(num_elements * share, num_sent, compute)
        + _select_s(num_elements * share, num_sent * share, compute)
        + compute.group_s
    )
    return GroupCost(
        prepare_s,
        beside_s,
        link.alltoall.seconds(nbytes),
        owner_s + link.allgather.seconds(nbytes * share),
        _decode_s(num_elements, num_sent, compute),
        nbytes * (1.0 + share),
    )


def _select_s(num_elements: float, num_selected: float, compute: ComputeModel) -> float:
    return (
        num_elements * compute.select_s_per_element + num_selected * compute.select_s_per_selected
    )


def _decode_s(num_elements: float, num_received: float, compute: ComputeModel) -> float:
    return (
        num_elements * compute.decode_s_per_element + num_received * compute.decode_s_per_selected
    )


def groups_due(
    layers: Sequence[LayerProfile], groups: Iterable[PlannedGroup]
) -> dict[int, list[tuple[PlannedGroup, list[LayerProfile]]]]:
    """Return groups, each with its layers, by the place in backward at which the last one is there.

    Args:
        layers: In the order of backward.
        groups: Of some of them.
    """
    place = places_of(layers)
    due: dict[int, list[tuple[PlannedGroup, list[LayerProfile]]]] = {}
    for group in groups:
        places = [place[name] for name in group.names]
        due.setdefault(max(places), []).append((group, [layers[each] for each in places]))
    return due


def simulate(
    layers: Sequence[LayerProfile], plan: Plan, compute: ComputeModel, link: LinkModel
) -> Timeline:
    """Run one step on paper.

    Args:
        layers: In the order of backward.
        plan: Every layer in exactly one group.
        compute: Costs of this rank.
        link: Costs between ranks.
    """
    due = groups_due(layers, plan.groups)
    now = compute.forward_s
    free = 0.0
    selected = 0.0  # when the thread that selects has done all it was given
    decode_s = 0.0
    second_s = 0.0
    spans = []
    for number, layer in enumerate(layers):
        now += layer.backward_s
        for group, members in due.get(number, ()):
            cost = group_cost(group, members, compute, link)
            arrival = now
            now += cost.prepare_s
            ready = now
            if cost.beside_s:
                ready = selected = max(now, selected) + cost.beside_s
            start = max(ready, free)
            free = start + cost.exchange_s
            decode_s += cost.decode_s
            second_s += cost.finish_s
            spans.append(GroupSpan(group, arrival, ready, start, free))
    # Second phases are submitted when backward is over and the first phases have ended
    free = max(now, free) + second_s if second_s else free
    compute_s = compute.forward_s + sum(layer.backward_s for layer in layers)
    return Timeline(tuple(spans), now, free, max(now, free) + decode_s, compute_s)


def speed_bound(forward_s: float, backward_s: float, exchange_s: float) -> float:
    """Return S_max: how much overlap alone can speed up a step, at most.

    (t_f + t_b + t_c) / (t_f + max(t_b, t_c)), with t_c the exchange, not the selection.
    """
    return (forward_s + backward_s + exchange_s) / (forward_s + max(backward_s, exchange_s))
