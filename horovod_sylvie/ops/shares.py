"""All shares of one parameter in one call: select from each, write each, clear each.

Doors, which check their arguments and choose between the kernel (cpp/) and its twin
(`top_k_twins.py`). A share is what one owner sums up (`shares_layout.py`); each has a row of
bytes, with a section (`top_k_section.py`) at the same offset in all rows. What is done to a share
is what `select_top_k`, `add_selected` and `clear_selected` do to a parameter.

Shapes: P shares, B bytes of a row, D elements of the parameter, S elements of a share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import top_k_kernels, top_k_twins
from .kernel_devices import kernel_or_twin
from .sections import ShareSections, raise_if_corrupt
from .select_report import SelectValues, SharesReport
from .selection import Selection, check_selection, check_share_rows
from .shares_layout import CHUNK_ELEMENTS, elements_of_share, places_of_share
from .top_k_arguments import (
    FLOATS,
    MAX_ELEMENTS,
    check_int,
    check_scale,
    check_skip,
    check_vector,
)

__all__ = [
    "CHUNK_ELEMENTS",
    "SharesReport",
    "add_shares",
    "clear_shares",
    "select_shares",
    "share_elements",
    "share_places",
]


def share_elements(num_elements: int, num_shares: int, share: int) -> int:
    """Return how many elements a share has, S; 0 where there are fewer chunks than shares.

    Args:
        num_elements: Number of elements of the parameter, D; at least 1.
        num_shares: Number of shares, P.
        share: Which, in [0, P).

    Raises:
        TypeError: If an argument is not an int.
        ValueError: If an argument is out of its range.
    """
    _check_share("share_elements", num_elements, num_shares, share)
    return elements_of_share(num_elements, num_shares, share)


def share_places(num_elements: int, num_shares: int, share: int, device: torch.device) -> Tensor:
    """Return where the elements of a share are in the parameter, ascending. [S], int64.

    Args:
        num_elements: Number of elements of the parameter, D; at least 1.
        num_shares: Number of shares, P.
        share: Which, in [0, P).
        device: Where to put them.

    Raises:
        TypeError: If a number is not an int.
        ValueError: If a number is out of its range.
    """
    _check_share("share_places", num_elements, num_shares, share)
    return places_of_share(num_elements, num_shares, share, device=device)


def select_shares(
    grad: Tensor | None,
    residual: Tensor,
    *,
    ks: Sequence[int],
    scale: float = 1.0,
    value_dtype: torch.dtype,
    hints: Sequence[int],
    accumulated: Tensor,
    rows: Tensor,
    offset: int,
) -> SharesReport:
    """Add a gradient to the residual, and move the largest sums of each share into its row.

    Args:
        grad: New gradient, None for none. [D], float32, float16 or bfloat16, contiguous.
        residual: What was not sent, finite. [D], float32, contiguous.
        ks: Number of selected elements of each share, in [1, S]; 0 of an empty share. P entries
        scale: Factor of `grad`, rounded to float32.
        value_dtype: torch.float32, or torch.bfloat16 for half the bytes.
        hints: `threshold_bits` of an earlier call, 0 for none. Change the speed only. P entries
        accumulated: Written; `residual` itself, or separate memory. [D], float32, contiguous.
        rows: The section of each share is written. [P, B], uint8, contiguous; B a multiple of 8.
        offset: Where the section starts in each row; a multiple of 8.

    Returns:
        The thresholds, and how many elements of `grad` were dropped. Of CUDA tensors: whoever reads
        a number waits for the device, and nothing else does.

    Raises:
        TypeError: If an argument is of the wrong kind or dtype.
        ValueError: If an argument has the wrong shape, device, layout or range.

    Note:
        Mutates `accumulated` and the sections; what else is in the rows stays. Does not go through
        autograd. Uses `torch.get_num_threads()` threads; the bits are the same for any number.
    """
    selection = Selection(grad, residual, ks, scale, value_dtype, hints, accumulated, rows, offset)
    check_selection("select_shares", selection)
    values = _kernel_or_twin("select", residual.device)([selection])
    return SharesReport(SelectValues(values), 0, selection.num_filled, len(ks))


def add_shares(
    rows: Tensor,
    *,
    offset: int,
    ks: Sequence[int],
    value_dtype: torch.dtype,
    scale: float,
    out: Tensor,
    skip: Sequence[int] = (),
) -> None:
    """Write what each owner sent of its share into a dense gradient, zeros elsewhere.

    An element is 0 + value * scale in float32; then it is rounded to the dtype of `out`.

    Args:
        rows: A row of bytes from each owner. [P, B], uint8, contiguous; B a multiple of 8.
        offset: Where the section starts in each row; a multiple of 8.
        ks: Number of selected elements of each share, in [1, S]; 0 of an empty share. P entries
        value_dtype: Of the sections' values.
        scale: Factor of every value, rounded to float32.
        out: Written. [D], float32, float16 or bfloat16, contiguous.
        skip: Owners whose bytes are not looked at.

    Raises:
        TypeError: If an argument is of the wrong kind or dtype.
        CorruptSectionError: If an owner's section is corrupt; `out` is unchanged then.
        ValueError: If an argument has the wrong shape, device, layout or range.

    Note:
        Uses `torch.get_num_threads()` threads; the bits are the same for any number.
    """
    name = "add_shares"
    check_vector(name, "out", out, FLOATS)
    check_share_rows(name, rows, offset, out.shape[0], ks, value_dtype, out.device)
    check_scale(name, scale)
    check_skip(name, skip, rows.shape[0])
    sections = ShareSections(rows, offset, ks, value_dtype, out, skip)
    report = _kernel_or_twin("add", out.device)([sections], scale=scale)
    raise_if_corrupt(name, [sections], report)


def clear_shares(
    rows: Tensor, *, offset: int, ks: Sequence[int], value_dtype: torch.dtype, tensor: Tensor
) -> None:
    """Set the elements that the shares' sections select to +0.

    Args:
        rows: What `select_shares` wrote. [P, B], uint8, contiguous; B a multiple of 8.
        offset: Where the section starts in each row; a multiple of 8.
        ks: Number of selected elements of each share. P entries
        value_dtype: Of the sections' values.
        tensor: Mutated. [D], float32, contiguous.

    Raises:
        TypeError: If an argument is of the wrong kind or dtype.
        CorruptSectionError: If a section is corrupt; `tensor` is unchanged then.
        ValueError: If an argument has the wrong shape, device, layout or range.
    """
    name = "clear_shares"
    check_vector(name, "tensor", tensor, (torch.float32,))
    check_share_rows(name, rows, offset, tensor.shape[0], ks, value_dtype, tensor.device)
    sections = ShareSections(rows, offset, ks, value_dtype, tensor)
    raise_if_corrupt(name, [sections], _kernel_or_twin("clear", tensor.device)([sections]))


def _check_share(function: str, num_elements: Any, num_shares: Any, share: Any) -> None:
    check_int(function, "num_elements", num_elements, 1, MAX_ELEMENTS)
    check_int(function, "num_shares", num_shares, 1, MAX_ELEMENTS)
    check_int(function, "share", share, 0, num_shares - 1)


def _kernel_or_twin(operation: str, device: torch.device) -> Callable[..., Tensor]:
    native = top_k_kernels.native_for(device)
    return kernel_or_twin(operation, native, top_k_kernels, top_k_twins)
