"""How many bits each row gets under a budget of bytes. Pure functions on tensors; no ranks.

A row of F features and a spread of r, rounded stochastically to L + 1 = 2^b levels, arrives with
an error of variance F * r^2 / (6 L^2) or so, and counts by the squares of the weights with which
its receivers add it up: w = r^2 * sum(alpha^2). The bits that make the least error under a budget
solve

    minimise    sum_i  F_i * w_i / (2^b_i - 1)^2
    subject to  sum_i  copies_i * row_bytes(F_i, b_i) <= budget,   b_i in {1, 2, 4, 8}

where row_bytes(F, b) = 4 + ceil(b F / 8), as in `ops/pack_rows.py`. A row goes up in steps,
1 -> 2 -> 4 -> 8 bits, and each of its steps gains less per byte than the one before. So the steps
of all rows, taken in order of gain per byte until one does not fit, are the best choice for the
bytes that they use, and lose less against the best choice for the budget than that step would gain.
AdaQP (Wan et al., MLSys 2023) solves the same problem with an integer program; here it is one sort.

Shapes: N rows.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

BIT_WIDTHS: Final = (1, 2, 4, 8)

_ROW_HEADER_BYTES: Final = 4
_ERRORS: Final = tuple(1.0 / (2**bits - 1) ** 2 for bits in BIT_WIDTHS)


def allocate_bits(
    weight: Tensor, row_features: Tensor, copies: Tensor, *, budget_bytes: int
) -> Tensor:
    """Choose the bits of every row, with the least error that a budget of bytes allows.

    Equal arguments give equal bits, whatever the rank, device or number of threads: where steps
    gain the same per byte, the row with the lower number goes first.

    Args:
        weight: Importance of each row: its squared spread times the sum of the squared weights
            with which its receivers aggregate it, in any unit that all rows share. A row of
            weight 0 stays at one bit. [N], float64
        row_features: Elements of each row, F. [N], int64, at least 1
        copies: Receivers that each row goes to. [N], int64, at least 1
        budget_bytes: Bytes that all copies of all rows may take together, without the headers of
            messages.

    Returns:
        1, 2, 4 or 8 for each row. [N], uint8. More budget never gives a row fewer bits.

    Raises:
        TypeError: Wrong dtypes.
        ValueError: Wrong shapes, a negative or non-finite weight, a number of features or copies
            below 1, or a budget below one bit for every row.
    """
    _check(weight, row_features, copies, budget_bytes)
    total_bytes = torch.stack(  # [N, 4]
        [copies * _row_bytes(row_features, bits) for bits in BIT_WIDTHS], dim=1
    )
    least = least_bytes(row_features, copies)
    left_bytes = budget_bytes - least
    if left_bytes < 0:
        raise ValueError(
            f"allocate_bits: expected at least {least} bytes, which is one bit for every element, "
            f"for 'budget_bytes', got {budget_bytes}. Give a larger budget."
        )
    errors = torch.tensor(_ERRORS, dtype=torch.float64, device=weight.device)
    gain = (row_features * weight)[:, None] * -errors.diff()  # [N, 3]
    cost = total_bytes.diff(dim=1)  # [N, 3]; 0 where both widths end in the same byte
    gain_per_byte = torch.where(gain > 0, gain / cost, 0.0).flatten()
    order = gain_per_byte.argsort(descending=True, stable=True)
    affordable = cost.flatten()[order].cumsum(0) <= left_bytes
    taken = torch.zeros_like(affordable)
    taken[order] = affordable & (gain_per_byte[order] > 0)
    # A row's steps stand in their order among all steps, so those taken are its first ones.
    return (1 << taken.view(-1, 3).sum(dim=1)).to(torch.uint8)


def least_bytes(row_features: Tensor, copies: Tensor) -> int:
    """Return what all copies of all rows take at one bit: the least budget.

    Args:
        row_features: Elements of each row, F. [N], int64
        copies: Receivers that each row goes to. [N], int64
    """
    return int((copies * _row_bytes(row_features, BIT_WIDTHS[0])).sum())


def _row_bytes(row_features: Tensor, bits: int) -> Tensor:
    """Return what `packed_row_bytes` says, for every row."""
    return _ROW_HEADER_BYTES + (bits * row_features + 7) // 8


def check_bits(function: str, argument: str, bits: Tensor, num_rows: int) -> None:
    """Raise a ValueError unless a tensor holds 1, 2, 4 or 8 for every row.

    Args:
        function: Name of the calling function, for the message.
        argument: Name of the argument, for the message.
        bits: The tensor to check.
        num_rows: How many rows there are.
    """
    expected = f"{function}: expected 1, 2, 4 or 8 for each of {num_rows} rows for '{argument}'"
    if bits.dtype != torch.uint8 or tuple(bits.shape) != (num_rows,):
        raise ValueError(
            f"{expected}, got {bits.dtype} {tuple(bits.shape)}. Give a uint8 tensor [{num_rows}]."
        )
    wrong = torch.nonzero(~are_widths(bits)).flatten()
    if len(wrong) > 0:
        first = int(wrong[0])
        raise ValueError(f"{expected}, got {int(bits[first])} for row {first}.")


def are_widths(bits: Tensor) -> Tensor:
    """Return where a tensor holds 1, 2, 4 or 8. Bool, of its shape."""
    return torch.isin(bits, torch.tensor(BIT_WIDTHS, dtype=bits.dtype, device=bits.device))


def _check(weight: Tensor, row_features: Tensor, copies: Tensor, budget_bytes: int) -> None:
    named = {"weight": weight, "row_features": row_features, "copies": copies}
    for name, value in named.items():
        dtype = torch.float64 if name == "weight" else torch.int64
        if value.dtype != dtype:
            raise TypeError(f"allocate_bits: expected {dtype} for '{name}', got {value.dtype}.")
        if value.dim() != 1 or len(value) != len(weight):
            raise ValueError(
                "allocate_bits: expected one number per row for each of 'weight', 'row_features' "
                f"and 'copies', got shape {tuple(value.shape)} for '{name}' and "
                f"{tuple(weight.shape)} for 'weight'."
            )
        least = 0 if name == "weight" else 1
        wrong = torch.nonzero(~(torch.isfinite(value) & (value >= least))).flatten()
        if len(wrong) > 0:
            row = int(wrong[0])
            raise ValueError(
                f"allocate_bits: expected finite numbers of at least {least} for '{name}', got "
                f"{value[row].item()} for row {row}."
            )
    if isinstance(budget_bytes, bool) or not isinstance(budget_bytes, int):
        raise TypeError(f"allocate_bits: expected an int for 'budget_bytes', got {budget_bytes!r}.")
