"""What is selected from one array: the arguments of one selection of many, and their checks.

Shapes: P shares, B bytes of a row, D elements of the array, S elements of a share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from .shares_layout import elements_of_share
from .top_k_arguments import (
    MAX_ELEMENTS,
    check_int,
    check_list,
    check_offset,
    check_rows,
    check_scale,
    check_section_shape,
    check_sums,
    check_vector,
)
from .top_k_section import section_layout

_MAX_HINT: Final = (1 << 32) - 1


@dataclass(frozen=True)
class Selection:
    """One selection: `shares.select_shares` says what the arguments are.

    The one share of one is the array: what `top_k.select_top_k` does.
    """

    grad: Tensor | None
    residual: Tensor
    ks: Sequence[int]
    scale: float
    value_dtype: torch.dtype
    hints: Sequence[int]
    accumulated: Tensor
    rows: Tensor
    offset: int

    @property
    def num_filled(self) -> int:
        """How many shares are not empty; they are the first ones."""
        return sum(k > 0 for k in self.ks)


def check_selection(function: str, selection: Selection) -> None:
    """Raise unless everything about a selection fits together.

    Raises:
        TypeError: If an argument is of the wrong kind or dtype.
        ValueError: If an argument has the wrong shape, device, layout or range.
    """
    residual, rows = selection.residual, selection.rows
    check_vector(function, "residual", residual, (torch.float32,))
    check_share_rows(
        function,
        rows,
        selection.offset,
        residual.shape[0],
        selection.ks,
        selection.value_dtype,
        residual.device,
    )
    check_scale(function, selection.scale)
    check_list(function, "hints", selection.hints, rows.shape[0])
    for hint in selection.hints:
        check_int(function, "hints", hint, 0, _MAX_HINT)
    check_sums(function, selection.grad, residual, selection.accumulated)


def check_share_rows(
    function: str,
    rows: Any,
    offset: Any,
    num_elements: int,
    ks: Any,
    value_dtype: Any,
    device: torch.device,
) -> None:
    """Raise unless there is a row for each of `ks`, with the section of its share at `offset`."""
    check_rows(function, "rows", rows, device)
    check_int(function, "num_elements", num_elements, 1, MAX_ELEMENTS)
    check_section_shape(function, num_elements, 1, value_dtype)
    check_list(function, "ks", ks, rows.shape[0])
    nbytes = 0
    for share, k in enumerate(ks):
        size = elements_of_share(num_elements, len(ks), share)
        check_int(function, "ks", k, min(1, size), size)
        if size:
            nbytes = max(nbytes, section_layout(size, k, value_dtype).nbytes)
    check_offset(function, offset, rows.shape[1], nbytes)
