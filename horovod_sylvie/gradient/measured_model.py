"""How long a model's forward and backward take, layer by layer, measured on this machine."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Final

from torch import Tensor, nn

from ..device.clock import Mark, clock_of, settle
from ..planning.layers import LayerProfile
from .backward_profile import BackwardProfile
from .compression import DEFAULT_MIN_ELEMENTS, can_be_sparse

_START: Final = ""  # in place of a parameter: backward begins


def measure_layers(
    model: nn.Module,
    loss_of: Callable[[], Tensor],
    *,
    steps: int = 7,
    min_elements: int = DEFAULT_MIN_ELEMENTS,
) -> tuple[list[LayerProfile], float]:
    """Measure a model's layers in the order of backward.

    Args:
        model: Its parameters that require gradients are its layers.
        loss_of: Computes a loss on a batch of typical size.
        steps: How often, after two more to warm up.
        min_elements: Smaller layers, and those of one dimension, cannot be sparse.

    Returns:
        The layers, and the median seconds of forward. Medians over steps; the first gradient's
        time is from the start of backward.
    """
    profile = BackwardProfile()
    forward: list[float] = []
    named = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
    clock = clock_of(tensor.device for _, tensor in named)
    arrivals: dict[str, Mark] = {}

    def arrive(name: str) -> None:
        arrivals[name] = clock.mark()

    hooks = [
        tensor.register_post_accumulate_grad_hook(lambda _, name=name: arrive(name))
        for name, tensor in named
    ]
    try:
        for step in range(steps + 2):
            arrivals.clear()
            begun = clock.mark()
            loss = loss_of()
            arrivals[_START] = started = clock.mark()
            loss.backward()
            settle(clock.mark())
            model.zero_grad()
            if step > 1:
                forward.append(started.seconds_after(begun))
                profile.keep({name: at.seconds_after(started) for name, at in arrivals.items()})
    finally:
        for hook in hooks:
            hook.remove()
    tensors = dict(named)
    found = profile.intervals()
    del found[_START]
    unused = {name: 0.0 for name in tensors if name not in found}
    layers = [
        LayerProfile(
            name, tensors[name].numel(), seconds, can_be_sparse(tensors[name], min_elements)
        )
        for name, seconds in (found | unused).items()
    ]
    return layers, median(forward)
