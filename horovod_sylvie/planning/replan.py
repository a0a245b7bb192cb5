"""Whether a new plan is worth a change of plans: hysteresis.

A new plan costs a negotiation of every name and shape anew, and measured times tremble; so a plan
stays until another one is clearly better.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .layers import ComputeModel, LayerProfile
from .link_model import LinkModel
from .plan import STEP_TOLERANCE, Plan, num_selected
from .timeline import simulate

# A step is shorter, or a plan sends more, only beyond these ratios
_SHORTER: Final = 0.97
_MORE: Final = 1.25


def should_replace(
    current: Plan,
    new: Plan,
    layers: Sequence[LayerProfile],
    compute: ComputeModel,
    link: LinkModel,
) -> bool:
    """Return whether a new plan is clearly better than the current one.

    Args:
        current: The plan in use, whatever model it was made by.
        new: The plan that `make_plan` makes of the arguments below.
        layers: As measured now, in the order of backward.
        compute: Costs of this rank, as measured now.
        link: Costs between ranks, as measured now.

    Returns:
        True where the new plan's step is more than 3 % shorter, or where it is not longer (within
        `STEP_TOLERANCE`) and sends at least 1.25 times as many elements.
    """
    now_s = simulate(layers, current, compute, link).step_s
    then_s = simulate(layers, new, compute, link).step_s
    if then_s < _SHORTER * now_s:
        return True
    sent, would_send = elements_sent(current, layers), elements_sent(new, layers)
    more = would_send > sent and would_send >= _MORE * sent
    return more and then_s <= (1.0 + STEP_TOLERANCE) * now_s


def elements_sent(plan: Plan, layers: Sequence[LayerProfile]) -> int:
    """Return how many elements a rank sends of the layers that may be sparse.

    The others travel whole in every plan, and would hide a change.

    Args:
        plan: Every layer in exactly one group.
        layers: In the order of backward.
    """
    sizes = {layer.name: layer.num_elements for layer in layers if layer.can_be_sparse}
    return sum(
        num_selected(sizes[name], group.density)
        for group in plan.groups
        for name in group.names
        if name in sizes
    )
