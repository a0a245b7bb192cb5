"""What a plan by budget needs of the rows of an exchange: how far rounding can move them.

Features and gradients have different units, and so have the layers' features. Their errors add up
only once each is relative to the rows that it disturbs.

Shapes: N rows, U distinct rows to send, F features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .plan import Route


@dataclass(frozen=True, eq=False)
class ObservedRows:
    """The rows that one rank sends in one slot and direction.

    Attributes:
        ranges: Maximum less minimum of each distinct row. [U], float64
        squared_norms: Sum of squares of each distinct row. [U], float64
        copies: Receivers of each distinct row. [U], int64
        row_features: Elements of each row, F. [U], int64
    """

    ranges: Tensor
    squared_norms: Tensor
    copies: Tensor
    row_features: Tensor

    @staticmethod
    def of(rows: Tensor, route: Route) -> ObservedRows:
        """Observe the rows that a route picks; where they are not finite, they count as zeros.

        Args:
            rows: What the route picks from. [N, F], floating point
            route: Which rows go where.
        """
        picked = rows if route.unique_rows is None else rows.index_select(0, route.unique_rows)
        ranges = picked.amax(dim=1).double() - picked.amin(dim=1).double()
        norms = torch.linalg.vector_norm(picked, dim=1, dtype=torch.float64)
        copies = torch.bincount(route.expand, minlength=route.num_unique)
        return ObservedRows(
            torch.nan_to_num(ranges, nan=0.0, posinf=0.0),
            torch.nan_to_num(norms, nan=0.0, posinf=0.0).square(),
            copies,
            torch.full_like(copies, rows.shape[1]),
        )

    def relative_weights(self, importance: Tensor) -> Tensor:
        """Weigh each row's rounding against all of these rows.

        A row's error at its receivers is in proportion to `importance * range^2`. It is divided by
        the sum of `importance * |row|^2`: the squared norm of what the receivers add up, were the
        rows independent. So a factor of the loss, or of a layer's features, changes no weight.

        The sum is over this rank's rows: each rank shares its own bytes among its own rows, and no
        weight is compared with another rank's.

        Args:
            importance: Sum of the squared weights with which receivers use each row, not negative.
                [U], float64

        Returns:
            The weights for `allocate_bits`, from 0 to 2; all 0 where the rows are zeros, or where
            no receiver uses them. [U], float64
        """
        total = (importance * self.squared_norms).sum()
        return torch.where(total > 0, importance * self.ranges.square() / total, 0.0)
