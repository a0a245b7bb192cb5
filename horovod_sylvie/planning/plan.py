"""A plan: which layers travel together, and how. The same on every rank.

Shapes: K selected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

ExchangeKind = Literal["dense", "allgather", "two-phase"]

# A fused vector is closed at this size: large enough to be worth a message, small enough that the
# first one leaves while backward goes on
FUSED_ELEMENTS = 1 << 16

# Bytes that travel for one selected element: a bfloat16 value and a 16-bit index
SELECTED_BYTES = 4

# What counts as no longer, as a share of a step: every selected element costs some time, and a
# plan that sends nearly everything in nearly no time is wanted
STEP_TOLERANCE = 0.005

# Below this gain another way of exchange is not worth its surprises
WORTHWHILE_GAIN = 1.05


def kinds_between(num_ranks: int) -> tuple[ExchangeKind, ...]:
    """Return how groups may travel between P ranks: between two, an owner saves nothing."""
    return ("dense", "allgather", "two-phase") if num_ranks > 2 else ("dense", "allgather")


@dataclass(frozen=True)
class PlannedGroup:
    """Layers that are exchanged together.

    Layers that cannot be sparse may ride along in the payload of an allgather, whole: that saves an
    operation, where the ranks are few.

    Attributes:
        names: Of the layers, in the order of backward.
        kind: How they travel.
        density: Of each layer that may be sparse; 1 where they travel dense.
    """

    names: tuple[str, ...]
    kind: ExchangeKind
    density: float = 1.0


@dataclass(frozen=True)
class Plan:
    """How a model's gradients are exchanged.

    Attributes:
        groups: In the order of backward; every layer in exactly one.
    """

    groups: tuple[PlannedGroup, ...]


def ladder(min_density: float, max_density: float, *, factor: float = 1.25) -> tuple[float, ...]:
    """Return the densities that a plan may choose, ascending.

    A ladder keeps payload shapes, and so Horovod's response cache, unless something has really
    changed.

    Args:
        min_density: The first.
        max_density: The last.
        factor: From one to the next.
    """
    steps = max(1, math.ceil(math.log(max_density / min_density) / math.log(factor)))
    if max_density == min_density:
        return (min_density,)
    ratio = (max_density / min_density) ** (1.0 / steps)
    return (*(min_density * ratio**step for step in range(steps)), max_density)


def num_selected(num_elements: int, density: float) -> int:
    """Return how many of a layer's elements travel: K, at least 1.

    Args:
        num_elements: Elements of the layer, D; at least 1.
        density: In (0, 1].

    Returns:
        density * D, rounded up.
    """
    return min(num_elements, max(1, math.ceil(density * num_elements)))
