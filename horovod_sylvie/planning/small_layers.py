"""How small layers travel: fused in operations of their own, or riding along with sparse ones.

One operation for all of them is the least work, and ends late: it starts when the last gradient of
all is there. So their groups may be divided, and the last ones, or all, may ride.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from .layers import LayerProfile, places_of
from .plan import PlannedGroup

# A group is divided into so many parts at most, and into parts of so many elements at least
_MOST_PARTS: Final = 16
_LEAST_ELEMENTS: Final = 512


def divisions(
    layers: Sequence[LayerProfile], fused: Sequence[PlannedGroup]
) -> list[tuple[PlannedGroup, ...]]:
    """Return the groups of small layers as they are, and divided more and more finely.

    Args:
        layers: In the order of backward.
        fused: The groups.
    """
    sizes = {layer.name: layer.num_elements for layer in layers}
    place = places_of(layers)
    largest = max((sum(sizes[name] for name in each.names) for each in fused), default=0)
    found = [tuple(fused)]
    parts = 2
    while parts <= _MOST_PARTS and largest >= parts * _LEAST_ELEMENTS:
        limit = largest // parts
        found.append(tuple(part for group in fused for part in _divide(group, sizes, place, limit)))
        parts *= 2
    return found


def _divide(
    group: PlannedGroup, sizes: Mapping[str, int], place: Mapping[str, int], limit: int
) -> Iterator[PlannedGroup]:
    """Yield a group's layers in parts that are closed at `limit` elements."""
    names: list[str] = []
    total = 0
    for name in sorted(group.names, key=place.__getitem__):
        names.append(name)
        total += sizes[name]
        if total >= limit:
            yield PlannedGroup(tuple(names), "dense")
            names, total = [], 0
    if names:
        yield PlannedGroup(tuple(names), "dense")


def with_riders(
    layers: Sequence[LayerProfile],
    groups: Sequence[PlannedGroup],
    small: Sequence[PlannedGroup],
    *,
    waits: bool,
) -> list[PlannedGroup]:
    """Return groups in which small layers ride along with the next sparse ones that are sent.

    Args:
        layers: In the order of backward.
        groups: Of all other layers.
        small: Groups whose layers are to ride. Those for which there is no carrier stay fused.
        waits: Whether the last carrier waits for small layers that come after it.
    """
    place = places_of(layers)
    carriers = sorted(
        (group for group in groups if group.kind == "allgather"), key=lambda each: _end(each, place)
    )
    if not carriers:
        return [*groups, *small]
    ends = [_end(carrier, place) for carrier in carriers]
    riders: list[list[str]] = [[] for _ in carriers]
    left: list[str] = []
    for name in sorted((n for group in small for n in group.names), key=place.__getitem__):
        number = bisect_left(ends, place[name])
        number = min(number, len(carriers) - 1) if waits else number
        (riders[number] if number < len(carriers) else left).append(name)
    found = [group for group in groups if group.kind != "allgather"]
    found += [
        replace(carrier, names=(*carrier.names, *names))
        for carrier, names in zip(carriers, riders, strict=True)
    ]
    return [*found, PlannedGroup(tuple(left), "dense")] if left else found


def _end(group: PlannedGroup, place: Mapping[str, int]) -> int:
    return max(place[name] for name in group.names)
