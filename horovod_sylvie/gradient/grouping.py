"""Which parameters travel together, and how: the plan of a model's exchange.

A pure function of what every rank knows before the first step, so that all ranks make the same
groups. Small and one-dimensional parameters are fused in the order in which backward reaches
them, the reverse of their definition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from ..planning.plan import FUSED_ELEMENTS
from .compression import BFloat16, TopK, can_be_sparse
from .parameter import ExchangedParameter

GroupKind = Literal["allreduce", "fused", "bf16", "topk"]
Groups = int | Sequence[Sequence[str]] | None


@dataclass(frozen=True)
class Group:
    """Parameters that are exchanged together.

    Attributes:
        kind: How.
        name: Stable name, unique in a plan.
        parameters: Which; at least one.
    """

    kind: GroupKind
    name: str
    parameters: tuple[ExchangedParameter, ...]


def make_groups(
    parameters: Sequence[ExchangedParameter], compression: object, groups: Groups
) -> list[Group]:
    """Plan the groups of a model.

    Args:
        parameters: In the order of definition.
        compression: As `check_compression` accepts it.
        groups: A number of groups, or the names of each group's parameters (those not named stand
            alone), or None for what fits the compression.

    Returns:
        Every parameter in exactly one group, the groups in the order of their last parameters'
        definition, reversed.
    """
    wanted = _wanted(parameters, groups)
    if isinstance(compression, TopK):
        plan = list(_top_k_groups(parameters, wanted, compression))
    elif isinstance(compression, BFloat16):
        plan = list(_fused_groups(parameters, wanted, "bf16"))
    else:
        members = wanted if wanted is not None else [(parameter,) for parameter in parameters]
        plan = [Group("allreduce", each[0].name, tuple(each)) for each in members]
    place = {id(parameter): number for number, parameter in enumerate(parameters)}
    plan.sort(key=lambda group: -max(place[id(each)] for each in group.parameters))
    return plan


def _wanted(
    parameters: Sequence[ExchangedParameter], groups: Groups
) -> list[tuple[ExchangedParameter, ...]] | None:
    """Resolve the user's `groups`; None where there are none."""
    if groups is None or groups == 0:
        return None
    if isinstance(groups, int):
        size = max(1, -(-len(parameters) // groups))
        starts = range(0, len(parameters), size)
        return [tuple(parameters[start : start + size]) for start in starts]
    by_name = {parameter.name: parameter for parameter in parameters}
    wanted = []
    for names in groups:
        members = tuple(by_name.pop(name) for name in names if name in by_name)
        if members:
            wanted.append(members)
    return [*wanted, *((parameter,) for parameter in by_name.values())]


def _top_k_groups(
    parameters: Sequence[ExchangedParameter],
    wanted: list[tuple[ExchangedParameter, ...]] | None,
    policy: TopK,
) -> Iterator[Group]:
    def is_sparse(parameter: ExchangedParameter) -> bool:
        return can_be_sparse(parameter.tensor, policy.min_elements)

    if wanted is None:
        sparse = [(parameter,) for parameter in parameters if is_sparse(parameter)]
        yield from (Group("topk", each[0].name, each) for each in sparse)
        dense = [parameter for parameter in parameters if not is_sparse(parameter)]
        yield from _fused_groups(dense, None, "fused")
        return
    for members in wanted:
        selected = tuple(each for each in members if is_sparse(each))
        if selected:
            yield Group("topk", selected[0].name, selected)
        yield from _fused_groups([each for each in members if not is_sparse(each)], None, "fused")


def _fused_groups(
    parameters: Sequence[ExchangedParameter],
    wanted: list[tuple[ExchangedParameter, ...]] | None,
    kind: GroupKind,
) -> Iterator[Group]:
    """Fuse neighbours of one device and one width, in the order of backward."""
    if wanted is not None:
        for members in wanted:
            yield from _fused_groups(members, None, kind)
        return
    classes: dict[tuple[torch.device, bool], list[ExchangedParameter]] = {}
    for parameter in reversed(parameters):
        double = parameter.tensor.dtype == torch.float64
        classes.setdefault((parameter.tensor.device, double), []).append(parameter)
    for members_of_class in classes.values():
        open_group: list[ExchangedParameter] = []
        for parameter in members_of_class:
            open_group.append(parameter)
            if sum(each.num_elements for each in open_group) >= FUSED_ELEMENTS:
                yield _fused(kind, open_group)
                open_group = []
        if open_group:
            yield _fused(kind, open_group)


def _fused(kind: GroupKind, members: Sequence[ExchangedParameter]) -> Group:
    suffix = "" if len(members) == 1 else f"+{len(members) - 1}"
    return Group(kind, f"{members[0].name}{suffix}.{kind}", tuple(members))
