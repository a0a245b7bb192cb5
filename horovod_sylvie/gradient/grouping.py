"""Which parameters travel together, and how: the plan of a model's exchange.

A pure function of what every rank knows before the first step, so that all ranks make the same
groups. Small and one-dimensional parameters are fused in the order in which backward reaches
them, the reverse of their definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from ..planning.plan import FUSED_ELEMENTS, ExchangeKind, Plan, PlannedGroup
from .compression import BFloat16, Compression, Lags, TopK, can_be_sparse
from .parameter import ExchangedParameter

GroupKind = Literal["allreduce", "fused", "bf16", "topk", "two-phase"]
Groups = int | Sequence[Sequence[str]] | None


@dataclass(frozen=True)
class Group:
    """Parameters that are exchanged together.

    Attributes:
        kind: How.
        name: Stable name, unique in a plan.
        parameters: Which; at least one.
        density: Of those that travel sparse.
        riders: More of them, that travel whole in the payload of the others ("topk" only).
    """

    kind: GroupKind
    name: str
    parameters: tuple[ExchangedParameter, ...]
    density: float = 1.0
    riders: tuple[ExchangedParameter, ...] = ()

    @property
    def members(self) -> tuple[ExchangedParameter, ...]:
        """All parameters of the group."""
        return (*self.parameters, *self.riders)


def make_groups(
    parameters: Sequence[ExchangedParameter],
    compression: object,
    groups: Groups,
    plan: Plan | None = None,
    *,
    in_one: bool = False,
) -> list[Group]:
    """Form the groups of a model.

    Args:
        parameters: In the order of definition.
        compression: As `check_compression` accepts it.
        groups: A number of groups, or the names of each group's parameters (those not named stand
            alone), or None for what fits the compression.
        plan: Of a policy whose densities adapt; None before it has one.
        in_one: Whether, without compression and `groups`, all parameters travel in one message
            (for each device, and double precision by itself).

    Returns:
        Every parameter in exactly one group, the groups in the order of their last parameters'
        definition, reversed.
    """
    wanted = _wanted(parameters, groups)
    if isinstance(compression, TopK):
        made = list(_top_k_groups(parameters, wanted, compression))
    elif isinstance(compression, Lags):
        made = list(_planned_groups(parameters, plan, compression))
    elif isinstance(compression, BFloat16):
        made = list(_fused_groups(parameters, wanted, "bf16"))
    elif in_one and wanted is None and compression is Compression.none:
        made = [_fused("fused", each) for each in _by_kind(parameters).values()]
    else:
        members = wanted if wanted is not None else [(parameter,) for parameter in parameters]
        made = [Group("allreduce", each[0].name, tuple(each)) for each in members]
    place = {id(parameter): number for number, parameter in enumerate(parameters)}
    made.sort(key=lambda group: -max(place[id(each)] for each in group.members))
    return made


def _planned_groups(
    parameters: Sequence[ExchangedParameter], plan: Plan | None, policy: Lags
) -> Iterator[Group]:
    """Form the groups of a plan; what it does not know yet travels at the highest density."""
    unplanned = {parameter.name: parameter for parameter in parameters}
    for planned in () if plan is None else plan.groups:
        found = [unplanned.pop(name) for name in planned.names if name in unplanned]
        for members in _by_device(found):
            if planned.kind == "dense":
                yield _fused("fused", members)
            else:
                yield from _sparse_groups(members, planned, policy)
    yield from _top_k_groups(list(unplanned.values()), None, policy.top_k(policy.max_density))


def _sparse_groups(
    members: Sequence[ExchangedParameter], planned: PlannedGroup, policy: Lags
) -> Iterator[Group]:
    """Form the group of members that may be sparse, with the others in its payload if they fit."""
    sparse = [each for each in members if can_be_sparse(each.tensor, policy.min_elements)]
    whole = [each for each in members if each not in sparse]
    fits = [each for each in whole if each.tensor.dtype != torch.float64]
    if planned.kind != "allgather" or not sparse:
        fits = []
    if sparse:
        group = _sparse_group(sparse, planned.kind, planned.density)
        yield replace(group, riders=tuple(fits))
    yield from _fused_groups([each for each in whole[::-1] if each not in fits], None, "fused")


def _by_device(
    members: Sequence[ExchangedParameter],
) -> Iterable[tuple[ExchangedParameter, ...]]:
    """Divide parameters by device: a payload, and a fused vector, is on one."""
    devices: dict[torch.device, list[ExchangedParameter]] = {}
    for parameter in members:
        devices.setdefault(parameter.tensor.device, []).append(parameter)
    return [tuple(each) for each in devices.values()]


def _sparse_group(
    members: Sequence[ExchangedParameter], exchange: ExchangeKind, density: float
) -> Group:
    kind: GroupKind = "topk" if exchange == "allgather" else "two-phase"
    return Group(kind, members[0].name, tuple(members), density)


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
        for each in sparse:
            yield _sparse_group(each, policy.exchange, policy.density)
        dense = [parameter for parameter in parameters if not is_sparse(parameter)]
        yield from _fused_groups(dense, None, "fused")
        return
    for members in wanted:
        selected = tuple(each for each in members if is_sparse(each))
        if selected:
            yield _sparse_group(selected, policy.exchange, policy.density)
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
    for members_of_class in _by_kind(parameters).values():
        open_group: list[ExchangedParameter] = []
        for parameter in members_of_class:
            open_group.append(parameter)
            if sum(each.num_elements for each in open_group) >= FUSED_ELEMENTS:
                yield _fused(kind, open_group)
                open_group = []
        if open_group:
            yield _fused(kind, open_group)


def _by_kind(
    parameters: Sequence[ExchangedParameter],
) -> dict[tuple[torch.device, bool], list[ExchangedParameter]]:
    """Divide parameters by device and width, each in the order of backward."""
    classes: dict[tuple[torch.device, bool], list[ExchangedParameter]] = {}
    for parameter in reversed(parameters):
        double = parameter.tensor.dtype == torch.float64
        classes.setdefault((parameter.tensor.device, double), []).append(parameter)
    return classes


def _fused(kind: GroupKind, members: Sequence[ExchangedParameter]) -> Group:
    suffix = "" if len(members) == 1 else f"+{len(members) - 1}"
    return Group(kind, f"{members[0].name}{suffix}.{kind}", tuple(members))
