"""What a planner knows: a model's layers in the order of backward, and a rank's speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# On the host a group of so many elements is selected from in a thread of its own. Waking it takes
# about 50 us, as long as selecting from some 50 thousand elements.
BESIDE_ELEMENTS: Final = 1 << 17


@dataclass(frozen=True)
class LayerProfile:
    """One parameter, as backward reaches it.

    Attributes:
        name: Of the parameter.
        num_elements: D.
        backward_s: Seconds from the previous gradient to this one.
        can_be_sparse: Whether it may be sparsified at all; biases and norms may not.
    """

    name: str
    num_elements: int
    backward_s: float
    can_be_sparse: bool = True


def places_of(layers: Sequence[LayerProfile]) -> dict[str, int]:
    """Return each layer's place in backward, by name."""
    return {layer.name: number for number, layer in enumerate(layers)}


@dataclass(frozen=True)
class ComputeModel:
    """What a rank does beside backward.

    Attributes:
        forward_s: Forward, loss and the optimizer's step, in seconds.
        select_s_per_element: Adding to the residual and selecting, per element of a layer.
        select_s_per_selected: What each selected element adds to that.
        decode_s_per_element: Clearing a gradient, per element.
        decode_s_per_selected: Adding one rank's selected element.
        copy_s_per_element: Moving a dense gradient in and out of a buffer.
        group_s: What each group costs, whatever its size: hooks, headers, Python.
        beside_elements: Groups of at least so many elements are selected from beside backward, one
            after the other; the others between two of its layers.
    """

    forward_s: float = 0.0
    select_s_per_element: float = 6e-10
    select_s_per_selected: float = 1e-8
    decode_s_per_element: float = 2e-10
    decode_s_per_selected: float = 3e-9
    copy_s_per_element: float = 4e-10
    group_s: float = 1e-4
    beside_elements: float = math.inf
