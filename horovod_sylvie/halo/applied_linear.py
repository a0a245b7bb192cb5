"""A linear layer whose weight may be applied ahead of the layer's own call.

Shapes: N rows, F columns in, C columns out.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn.dense import Linear


class AppliedLinear(Linear):  # type: ignore[misc]  # PyG has no type information
    """PyG's `Linear`, which adds only its bias while its weight is marked as applied.

    A convolution that starts with `x = self.lin(x)` can then be given `lin.apply_weight(x)`
    instead of `x`. Parameters, options and state-dict keys are those of `Linear`.

    Attributes:
        applied: The dtype of the products, while what the layer is called with went through
            `apply_weight` before; it returns that dtype then. Under autocast it is not the rows'.
    """

    applied: torch.dtype | None = None

    @staticmethod
    def convert(linear: Linear) -> None:
        """Make a linear layer one of these, in place; whoever holds it holds this one then.

        Args:
            linear: A layer whose class is exactly `Linear`.
        """
        linear.__class__ = AppliedLinear

    def __deepcopy__(self, memo: dict[int, Any]) -> AppliedLinear:
        """Copy as any module is; PyG before 2.7 makes a `Linear`, without its hooks."""
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        new.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return new

    def apply_weight(self, x: Tensor) -> Tensor:
        """Return `x` times the weight, without the bias.

        Args:
            x: Rows. [N, F]

        Returns:
            Rows for `forward`, with `applied` set. [N, C]
        """
        return functional.linear(x, self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Apply weight and bias, or the bias alone to rows that have the weight.

        Args:
            x: Rows. [N, F], or [N, C] where the weight was applied before

        Returns:
            Rows. [N, C]
        """
        if self.applied is None:
            output: Tensor = super().forward(x)
            return output
        return (x if self.bias is None else x + self.bias).to(self.applied)
