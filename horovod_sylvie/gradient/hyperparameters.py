"""The numbers in an optimizer's parameter groups, which a rank without batches must follow.

Schedulers change them batch by batch, on the ranks that have batches. A rank that takes their
steps with other numbers would end with other parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor


def read_numbers(param_groups: Sequence[dict[str, Any]]) -> list[float]:
    """Return all numbers of all groups, in a fixed order."""
    return [float(part) for _, _, value in _numeric(param_groups) for part in _parts(value)]


def write_numbers(param_groups: Sequence[dict[str, Any]], numbers: Sequence[float]) -> None:
    """Replace all numbers of all groups by those that `read_numbers` returned elsewhere."""
    end = 0
    for group, key, value in list(_numeric(param_groups)):
        count = len(_parts(value))
        new = numbers[end : end + count]
        end += count
        if isinstance(value, tuple):
            group[key] = tuple(type(old)(part) for old, part in zip(value, new, strict=True))
        elif isinstance(value, Tensor):
            value.fill_(new[0])
        else:
            group[key] = type(value)(new[0])


def _numeric(param_groups: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    for group in param_groups:
        for key in sorted(group):
            parts = _parts(group[key])
            if key != "params" and parts and all(isinstance(each, (int, float)) for each in parts):
                yield group, key, group[key]


def _parts(value: Any) -> tuple[Any, ...]:
    if isinstance(value, Tensor):
        return (float(value),) if value.numel() == 1 else ()
    return value if isinstance(value, tuple) else (value,)
