"""The options for bits that adapt: rows of one exchange with 1, 2, 4 or 8 bits each.

    BudgetBits      the least error that a budget of bytes allows (`bit_allocation.py`)
    DegreeBits      the rule of the paper: many bits for nodes of high in-degree

Source of the second: "Sylvie: 3D-Adaptive and Universal System for Large-Scale Graph Neural Network
Training" (ICDE 2024).

Shapes: U distinct rows to send.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .bit_allocation import BIT_WIDTHS


@dataclass(frozen=True)
class BudgetBits:
    """Give every row the bits that make the least error under a budget of bytes.

    The error of each layer and direction is relative to the rows that travel there
    (`observed_rows.py`), so bits do not depend on the units of features or of the loss.

    Attributes:
        budget_bytes: Bytes of rows that all ranks together send in one epoch of training, features
            forward and gradients backward. The headers of messages and the rows that planning
            itself sends are not counted.
        every: Epochs from one plan to the next.
    """

    budget_bytes: int
    every: int = 20

    def __post_init__(self) -> None:
        """Check the options."""
        _check_count("BudgetBits", "budget_bytes", self.budget_bytes)
        _check_count("BudgetBits", "every", self.every)

    def is_due(self, epoch: int) -> bool:
        """Return whether bits are planned in an epoch, counted from 0."""
        return epoch % self.every == 0


@dataclass(frozen=True)
class DegreeBits:
    """Give rows of low in-degree few bits, and rows of high in-degree many.

    With `base` 1 the quarters of the rows have 1, 2, 4 and 8 bits (3.75 on average), with 2 the
    thirds have 2, 4 and 8, with 4 the halves have 4 and 8, and with 8 all rows have 8.

    In the first epoch all rows have one bit, although degrees are known before it: which layers
    exchange rows is known once they have been called, and receivers are told at the epoch's end.
    The same holds for a layer that is first called later.

    Attributes:
        base: The fewest bits: 1, 2, 4 or 8; where `adapt`, those of the first epochs.
        adapt: Whether the trend of the loss changes the base (`loss_trend.py`).
        every: Where `adapt`, epochs from one decision about the base to the next: it may change
            after epochs 0, `every`, 2 * `every` and so on.
    """

    base: int = 1
    adapt: bool = False
    every: int = 1

    def __post_init__(self) -> None:
        """Check the options."""
        _check_base("DegreeBits", self.base)
        if not isinstance(self.adapt, bool):
            raise ValueError(f"DegreeBits: expected True or False for 'adapt', got {self.adapt!r}.")
        _check_count("DegreeBits", "every", self.every)

    def is_due(self, epoch: int) -> bool:
        """Return whether bits are planned in an epoch, counted from 0.

        Only in the first where the base does not change, as degrees do not either.
        """
        return epoch % self.every == 0 if self.adapt else epoch == 0


def bits_by_degree(in_degree: Tensor, base: int) -> Tensor:
    """Give equal groups of rows, in order of their in-degree, from `base` to 8 bits.

    The paper cuts the distribution of degrees at its quantiles. Most nodes of most graphs share
    the few lowest degrees, so that quantiles fall together and one group takes nearly all rows.
    Here rows are cut by their rank: groups differ by one row at most, and among rows of equal
    degree the earlier ones count as lower. The paper cuts for each receiver anew; here all
    receivers get a row with the same bits, as it is quantised once.

    Args:
        in_degree: In-degree of each distinct row to send, on the whole graph; any real dtype. [U]
        base: The fewest bits: 1, 2, 4 or 8.

    Returns:
        The bits of each row. [U], uint8

    Raises:
        ValueError: `in_degree` is no vector of finite numbers, or `base` none of the four.
    """
    _check_base("bits_by_degree", base)
    if in_degree.dim() != 1 or not bool(torch.isfinite(in_degree).all()):
        raise ValueError(
            "bits_by_degree: expected one finite number per row for 'in_degree', got shape "
            f"{tuple(in_degree.shape)} or Inf or NaN."
        )
    widths = torch.tensor(
        [bits for bits in BIT_WIDTHS if bits >= base], dtype=torch.uint8, device=in_degree.device
    )
    num_rows = len(in_degree)
    place = torch.arange(num_rows, device=in_degree.device)
    bits = torch.empty(num_rows, dtype=torch.uint8, device=in_degree.device)
    bits[in_degree.argsort(stable=True)] = widths[place * len(widths) // max(num_rows, 1)]
    return bits


def _check_base(function: str, base: object) -> None:
    if type(base) is not int or base not in BIT_WIDTHS:
        raise ValueError(f"{function}: expected one of {BIT_WIDTHS} for 'base', got {base!r}.")


def _check_count(function: str, argument: str, count: object) -> None:
    if type(count) is not int or count < 1:
        raise ValueError(
            f"{function}: expected an int of at least 1 for '{argument}', got {count!r}."
        )
