"""Densities: as much gradient as fits into a step, the least dense groups first.

What has once not fitted is not tried again, since what travels only grows. A change of one group is
judged at once: the effect of the groups before it, its own, and that of the groups after it.

Not here: groups and kinds (`search.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from .effect import Effect
from .layers import ComputeModel, LayerProfile, places_of
from .link_model import LinkModel
from .plan import Plan, PlannedGroup
from .timeline import group_cost


def raise_densities(
    layers: Sequence[LayerProfile],
    compute: ComputeModel,
    link: LinkModel,
    plan: Plan,
    *,
    densities: Sequence[float],
    may_be_dense: bool,
    limit_s: float,
) -> Plan:
    """Return a plan of the same groups that sends more in a step that ends in time.

    Groups become dense where that fits, in the order of backward; then the densities of the others
    rise rung by rung, all to one rung before any of them to the next.

    Args:
        layers: In the order of backward.
        compute: Costs of this rank.
        link: Costs between ranks.
        plan: Its groups in the order of backward, those that are not dense at the lowest density.
        densities: The ladder, ascending.
        may_be_dense: Whether groups may become dense.
        limit_s: What a step may take.
    """
    step = _Step(layers, compute, link, plan)
    rising = [number for number, group in enumerate(plan.groups) if group.kind != "dense"]
    if may_be_dense:
        dense = {
            number: replace(plan.groups[number], kind="dense", density=1.0) for number in rising
        }
        became = step.change(dense, limit_s)
        rising = [number for number in rising if number not in became]
    for density in densities[1:]:
        raised = {number: replace(step.groups[number], density=density) for number in rising}
        rising = step.change(raised, limit_s)
    return Plan(tuple(step.groups))


class _Step:
    """A step whose groups change.

    Attributes:
        groups: As they are now, in the order of backward.
    """

    def __init__(
        self, layers: Sequence[LayerProfile], compute: ComputeModel, link: LinkModel, plan: Plan
    ) -> None:
        """Start with a plan."""
        place = places_of(layers)
        times = list(accumulate((layer.backward_s for layer in layers), initial=compute.forward_s))
        places = [[place[name] for name in group.names] for group in plan.groups]
        self.groups = list(plan.groups)
        self._compute = compute
        self._link = link
        self._backward_end_s = times[-1]
        self._arrivals = [times[max(each) + 1] for each in places]
        self._members = [[layers[number] for number in each] for each in places]
        self._effects = [self._effect(number, group) for number, group in enumerate(self.groups)]

    def change(self, changes: Mapping[int, PlannedGroup], limit_s: float) -> list[int]:
        """Change groups in the order of backward, each where the step still ends in time.

        Args:
            changes: By the groups' numbers.
            limit_s: What the step may take.

        Returns:
            The numbers of the groups that were changed.
        """
        changed = []
        before = Effect()
        after = list(accumulate(reversed(self._effects), _followed_by, initial=Effect()))[::-1]
        for number in range(len(self.groups)):
            if number in changes:
                tried = self._effect(number, changes[number])
                step_s = before.then(tried).then(after[number + 1]).step_s(self._backward_end_s)
                if step_s <= limit_s:
                    self.groups[number], self._effects[number] = changes[number], tried
                    changed.append(number)
            before = before.then(self._effects[number])
        return changed

    def _effect(self, number: int, group: PlannedGroup) -> Effect:
        cost = group_cost(group, self._members[number], self._compute, self._link)
        return Effect.of(self._arrivals[number], cost)


def _followed_by(later: Effect, earlier: Effect) -> Effect:
    return earlier.then(later)
