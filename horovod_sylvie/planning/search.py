"""Groups and kinds at one density: the layers in the order of backward, and a beam of plans.

A partial plan that is nowhere better than another one is dropped, and of the others those are kept
whose steps may end first. Groups that are given, of small layers, are taken in on the way.

Not here: densities (`densities.py`).

Shapes: S layers that may be sparse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Final, NamedTuple

from .effect import Effect
from .layers import ComputeModel, LayerProfile
from .link_model import LinkModel
from .plan import ExchangeKind, PlannedGroup, num_selected
from .timeline import cost_of_totals, group_cost, groups_due

# Partial plans kept at each layer, and how many neighbours may be merged into one group, beside all
# that are left: every number up to 6, then fewer and fewer. Steps of 20 to 160 layers are 0.3 %
# longer in the mean than with 32 plans and every number, and 2 % at most. Few layers have time for
# more plans, so many divided by their number: of up to 5 layers, none of 27,000 cases then was
# slower than the best plan there is, where 1 in 300 was with 3, by 4 % at most.
_BEAM: Final = 3
_BEAM_OF_FEW: Final = 100
_NUMBERS_MERGED: Final = frozenset(
    (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
)


class _Partial(NamedTuple):
    """A plan for the first layers.

    Attributes:
        bound_s: No plan that begins like this one ends its step earlier.
        effect: Of all its groups.
        begin: Number of the last group's first layer.
        kind: How the last group travels.
        before: The plan without it; None where there is no group.
    """

    bound_s: float
    effect: Effect
    begin: int
    kind: ExchangeKind
    before: _Partial | None


def search_groups(
    layers: Sequence[LayerProfile],
    compute: ComputeModel,
    link: LinkModel,
    *,
    kinds: Sequence[ExchangeKind],
    density: float,
    fused: Sequence[PlannedGroup],
) -> list[PlannedGroup]:
    """Return the best groups found for the layers that may be sparse, in order.

    Args:
        layers: In the order of backward.
        compute: Costs of this rank.
        link: Costs between ranks.
        kinds: How a group may travel; at least one.
        density: Of groups that do not travel dense.
        fused: The groups of all other layers.
    """
    sparse = [layer for layer in layers if layer.can_be_sparse]
    arrivals, between, backward_end_s = _times(layers, fused, compute, link)
    elements = list(accumulate((layer.num_elements for layer in sparse), initial=0))
    selected = (num_selected(layer.num_elements, density) for layer in sparse)
    sent = list(accumulate(selected, initial=0))
    beam = max(_BEAM, _BEAM_OF_FEW // max(1, len(sparse)))
    partials: list[list[_Partial]] = [[] for _ in range(len(sparse) + 1)]
    partials[0] = [_Partial(backward_end_s, Effect(), 0, kinds[0], None)]
    for begin in range(len(sparse)):
        kept = _prune(partials[begin], beam)
        for end, before in _ends(begin, between):
            totals = (end - begin, elements[end] - elements[begin], sent[end] - sent[begin])
            for kind in kinds:
                cost = cost_of_totals(kind, *totals, compute, link)
                group = before.then(Effect.of(arrivals[end - 1], cost))
                for each in kept:
                    effect = each.effect.then(group)
                    bound_s = effect.step_s(backward_end_s)
                    partials[end].append(_Partial(bound_s, effect, begin, kind, each))
    # What is given after the last of them may still change which plan is the best
    best = min(partials[-1], key=lambda each: each.effect.then(between[-1]).step_s(backward_end_s))
    names = [layer.name for layer in sparse]
    return [
        PlannedGroup(tuple(names[begin:end]), kind, 1.0 if kind == "dense" else density)
        for begin, end, kind in _groups(best, len(sparse))
    ]


def _times(
    layers: Sequence[LayerProfile],
    fused: Sequence[PlannedGroup],
    compute: ComputeModel,
    link: LinkModel,
) -> tuple[list[float], list[Effect], float]:
    """Return when things are there, without any preparation.

    Returns:
        The arrivals of the layers that may be sparse [S], the effects of the groups that are given
        before each of them and after the last one [S + 1], and the end of backward.
    """
    due = groups_due(layers, fused)
    arrivals = []
    between = [Effect()]
    now = compute.forward_s
    for number, layer in enumerate(layers):
        now += layer.backward_s
        for group, members in due.get(number, ()):
            cost = group_cost(group, members, compute, link)
            between[-1] = between[-1].then(Effect.of(now, cost))
        if layer.can_be_sparse:
            arrivals.append(now)
            between.append(Effect())
    return arrivals, between, now


def _ends(begin: int, between: Sequence[Effect]) -> Iterator[tuple[int, Effect]]:
    """Yield where a group may end, and the effect of what is given before it is there."""
    num_layers = len(between) - 1
    effect = Effect()
    for end in range(begin + 1, num_layers + 1):
        effect = effect.then(between[end - 1])
        if end == num_layers or end - begin in _NUMBERS_MERGED:
            yield end, effect


def _prune(partials: list[_Partial], beam: int) -> list[_Partial]:
    """Keep the `beam` most promising partial plans that no other one beats."""
    kept: list[_Partial] = []
    for partial in sorted(partials, key=itemgetter(0, 1)):
        if len(kept) == beam:
            break
        if not any(_beats(other.effect, partial.effect) for other in kept):
            kept.append(partial)
    return kept


def _beats(one: Effect, other: Effect) -> bool:
    return (
        one.added_s <= other.added_s
        and one.selected_s <= other.selected_s
        and one.end_s <= other.end_s
        and one.after_s <= other.after_s
    )


def _groups(last: _Partial, end: int) -> list[tuple[int, int, ExchangeKind]]:
    """Return the groups of a plan: first layer, one more than the last layer, kind."""
    found = []
    partial = last
    while partial.before is not None:
        found.append((partial.begin, end, partial.kind))
        partial, end = partial.before, partial.begin
    return found[::-1]
