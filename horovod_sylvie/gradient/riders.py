"""Small parameters that travel whole in the payload of others: one operation less for a group.

They are summed in float32, without error. An allgather sends them to each rank, which costs less
than an operation of their own where ranks are few.

Shapes: P ranks, W elements of all riders.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .exchange import Step
from .fused_exchange import fill_fused, nonfinite_sums
from .parameter import ExchangedParameter


class Riders:
    """The riders of one group.

    Args:
        parameters: Which; none of float64. May be empty.
    """

    def __init__(self, parameters: tuple[ExchangedParameter, ...]) -> None:
        self.parameters = parameters
        self._sizes = [parameter.num_elements for parameter in parameters]
        self._total = torch.empty(0)

    @property
    def num_elements(self) -> int:
        """How many elements travel: W."""
        return sum(self._sizes)

    def fill(self, place: Tensor, step: Step) -> None:
        """Write the local gradients, zeros where there is none. place: [4 W], uint8."""
        if self.parameters:
            fill_fused(place.view(torch.float32), self.parameters, step)

    def receive(self, places: Tensor) -> list[str]:
        """Sum what all ranks wrote, and say which sum is not finite. places: [P, 4 W], uint8."""
        if not self.parameters:
            return []
        self._total = places.view(torch.float32).sum(dim=0)
        return nonfinite_sums(self._total, self.parameters, self._sizes)

    def decode(self, scale: float) -> None:
        """Make the sums the gradients. `scale`: what a sum is multiplied by."""
        if self.parameters:
            self._total.mul_(scale)
            flats = self._total.split(self._sizes)
            for parameter, flat in zip(self.parameters, flats, strict=True):
                parameter.store(flat)
