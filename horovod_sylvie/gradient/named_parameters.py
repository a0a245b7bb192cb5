"""Checks of the names and groups that a user gives for an optimizer's parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from .grouping import Groups


def check_named_parameters(
    param_groups: Sequence[dict[str, Any]], named: Iterable[tuple[str, Tensor]] | None
) -> list[tuple[str, Tensor]]:
    """Return a unique name for each parameter of an optimizer.

    Args:
        param_groups: The optimizer's.
        named: What the user gave; None numbers the parameters.

    Returns:
        Name and parameter, each parameter once, those that the optimizer has. In the order given.

    Raises:
        ValueError: Not pairs, a name twice, or a parameter without a name.
    """
    tensors = [tensor for group in param_groups for tensor in group["params"]]
    if named is None:
        return [
            (f"allreduce.noname.{place}.{number}", tensor)
            for place, group in enumerate(param_groups)
            for number, tensor in enumerate(group["params"])
        ]
    pairs = list(named)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
        raise ValueError(
            "DistributedOptimizer: expected pairs of name and parameter for 'named_parameters', "
            "usually model.named_parameters()."
        )
    twice = sorted(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
    if twice:
        raise ValueError(
            "DistributedOptimizer: expected unique names in 'named_parameters', got twice: "
            f"{', '.join(twice)}. Put the modules into one, or add a prefix to each name."
        )
    name_of: dict[int, str] = {}
    for name, tensor in pairs:
        name_of.setdefault(id(tensor), name)  # a tied parameter keeps its first name
    unnamed = [tensor for tensor in tensors if id(tensor) not in name_of]
    if unnamed:
        raise ValueError(
            "DistributedOptimizer: expected every parameter of the optimizer in "
            f"'named_parameters', got none for {len(unnamed)} of {len(tensors)}, the first of "
            f"shape {tuple(unnamed[0].shape)}. Pass the named_parameters() of all modules."
        )
    own = {id(tensor) for tensor in tensors}
    by_id = {id(tensor): tensor for _, tensor in pairs}
    return [(name, by_id[key]) for key, name in name_of.items() if key in own]


def check_groups(groups: Any, named: Sequence[tuple[str, Tensor]]) -> Groups:
    """Return `groups` with names for parameters.

    Raises:
        ValueError: Neither a number from 0 nor lists of different parameters.
    """
    if groups is None:
        return None
    if isinstance(groups, int) and not isinstance(groups, bool) and groups >= 0:
        return groups
    if not isinstance(groups, (list, tuple)):
        raise ValueError(
            "DistributedOptimizer: expected a number of groups from 0, or a list of lists of "
            f"parameters, for 'groups', got {groups!r}."
        )
    name_of = {id(tensor): name for name, tensor in named}
    # A parameter is a sequence too, of its rows
    nested = all(isinstance(each, Iterable) and not isinstance(each, Tensor) for each in groups)
    lists = [list(group) for group in groups] if nested else []
    members = [tensor for group in lists for tensor in group]
    if not nested or any(not isinstance(tensor, Tensor) for tensor in members):
        raise ValueError("DistributedOptimizer: expected lists of parameters for 'groups'.")
    if len({id(tensor) for tensor in members}) < len(members):
        raise ValueError("DistributedOptimizer: expected each parameter at most once in 'groups'.")
    return tuple(
        tuple(name_of[id(tensor)] for tensor in group if id(tensor) in name_of) for group in lists
    )
