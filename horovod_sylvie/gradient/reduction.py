"""What becomes of the ranks' gradients: their sum or their mean, and where it is scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ReduceOp = Literal["Average", "Sum"]


@dataclass(frozen=True)
class Reduction:
    """Sum or mean, as `hvd.DistributedOptimizer` takes it.

    Attributes:
        op: "Average" or "Sum".
        predivide_factor: With "Average": gradients are divided by it before the sum, and the sum
            is multiplied by it and divided by P.
    """

    op: ReduceOp = "Average"
    predivide_factor: float = 1.0

    @property
    def prescale(self) -> float:
        """What each rank's gradient is multiplied by before the sum."""
        return 1.0 / self.predivide_factor if self.op == "Average" else 1.0

    def postscale(self, num_ranks: int) -> float:
        """What the sum over P ranks is multiplied by."""
        return self.predivide_factor / num_ranks if self.op == "Average" else 1.0

    def correction(self, num_ranks: int, num_active: int) -> float:
        """What a mean over P ranks is multiplied by to be one over those that had a batch."""
        return num_ranks / num_active if self.op == "Average" and num_active else 1.0

    def scale(self, num_ranks: int) -> float:
        """What a sum of P gradients, none of them scaled before, is multiplied by."""
        return 1.0 / num_ranks if self.op == "Average" else 1.0
