"""The checks of the top-k ops' arguments. Each text names function, argument, expectation and cure.

Wrong kinds and dtypes are TypeErrors; wrong shapes, devices, layouts and ranges ValueErrors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

# An element's number takes 32 bits in the kernels
MAX_ELEMENTS: Final = 1 << 32
VALUE_DTYPES: Final = (torch.float32, torch.bfloat16)
_FLOAT32_OVERFLOW: Final = float.fromhex("0x1.ffffffp127")  # rounds to Inf, all below do not
FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)


def check_sums(function: str, grad: Any, residual: Tensor, accumulated: Any) -> None:
    """Raise unless a gradient can be added to a residual that is checked, into `accumulated`."""
    length, device = residual.shape[0], residual.device
    if grad is not None:
        check_vector(function, "grad", grad, FLOATS, length=length, device=device)
    check_vector(
        function, "accumulated", accumulated, (torch.float32,), length=length, device=device
    )
    check_same_or_disjoint(function, "accumulated", accumulated, "residual", residual)


def check_section_shape(function: str, num_elements: Any, k: Any, value_dtype: Any) -> None:
    """Raise unless there is a section of `k` of `num_elements` elements with such values."""
    check_int(function, "num_elements", num_elements, 1, MAX_ELEMENTS)
    check_int(function, "k", k, 1, num_elements)
    if value_dtype not in VALUE_DTYPES:
        msg = (
            f"{function}: expected torch.float32 or torch.bfloat16 for 'value_dtype', got "
            f"{value_dtype!r}."
        )
        raise TypeError(msg)


def check_int(function: str, argument: str, value: Any, lowest: int, highest: int) -> None:
    """Raise unless `value` is an int in [lowest, highest]."""
    if not isinstance(value, int) or isinstance(value, bool):
        msg = f"{function}: expected an int for '{argument}', got {type(value).__name__}."
        raise TypeError(msg)
    if not lowest <= value <= highest:
        msg = (
            f"{function}: expected a number in [{lowest}, {highest}] for '{argument}', got {value}."
        )
        raise ValueError(msg)


def check_scale(function: str, scale: Any) -> None:
    """Raise unless `scale` is a finite number, as float32 too."""
    if not isinstance(scale, (int, float)) or isinstance(scale, bool):
        msg = f"{function}: expected a float for 'scale', got {type(scale).__name__}."
        raise TypeError(msg)
    if not abs(scale) < _FLOAT32_OVERFLOW:  # NaN too
        msg = f"{function}: expected a finite float32 number for 'scale', got {scale}."
        raise ValueError(msg)


def check_vector(
    function: str,
    argument: str,
    value: Any,
    dtypes: Sequence[torch.dtype],
    *,
    length: int | None = None,
    device: torch.device | None = None,
) -> None:
    """Raise unless `value` is a contiguous vector of one of these dtypes.

    Args:
        function: Named in the error.
        argument: Named in the error.
        value: Checked.
        dtypes: Those that it may have.
        length: The length that it must have; None for any.
        device: The device that it must be on; None for any.
    """
    check_tensor(function, argument, value, dtypes, device)
    if value.dim() != 1:
        msg = (
            f"{function}: expected one dimension for '{argument}', got shape "
            f"{tuple(value.shape)}. Flatten it with .view(-1)."
        )
        raise ValueError(msg)
    if length is not None and value.shape[0] != length:
        msg = f"{function}: expected shape ({length},) for '{argument}', got {tuple(value.shape)}."
        if value.dtype == torch.uint8:
            msg += " section_bytes gives the length of sections."
        raise ValueError(msg)


def check_tensor(
    function: str,
    argument: str,
    value: Any,
    dtypes: Sequence[torch.dtype],
    device: torch.device | None,
) -> None:
    """Raise unless `value` is a dense, contiguous tensor of one of these dtypes, on this device."""
    if not isinstance(value, Tensor):
        msg = f"{function}: expected a tensor for '{argument}', got {type(value).__name__}."
        raise TypeError(msg)
    if value.layout != torch.strided:
        msg = (
            f"{function}: expected a dense tensor for '{argument}', got layout {value.layout}. "
            "Convert it with .to_dense()."
        )
        raise TypeError(msg)
    if value.dtype not in dtypes:
        expected = " or ".join(str(dtype) for dtype in dtypes)
        msg = f"{function}: expected {expected} for '{argument}', got {value.dtype}."
        raise TypeError(msg)
    if not value.is_contiguous():
        msg = (
            f"{function}: expected a contiguous tensor for '{argument}', got strides "
            f"{value.stride()}. Pass a .contiguous() copy."
        )
        raise ValueError(msg)
    if device is not None and value.device != device:
        msg = (
            f"{function}: expected device {device} for '{argument}', got {value.device}. "
            "Move it to the other arguments' device."
        )
        raise ValueError(msg)


def check_same_or_disjoint(
    function: str, argument: str, value: Tensor, other_argument: str, other: Tensor
) -> None:
    """Raise if two tensors of one size share some of their memory without being the same."""
    distance = abs(value.data_ptr() - other.data_ptr())
    if 0 < distance < value.nbytes:
        msg = (
            f"{function}: expected '{other_argument}' itself or separate memory for '{argument}', "
            f"got memory that overlaps it by {value.nbytes - distance} bytes."
        )
        raise ValueError(msg)


def check_rows(function: str, argument: str, rows: Any, device: torch.device | None = None) -> None:
    """Raise unless `rows` has a row of bytes for each rank."""
    check_tensor(function, argument, rows, (torch.uint8,), device)
    if rows.dim() != 2 or rows.shape[0] < 1 or rows.shape[1] % 8 != 0:
        msg = (
            f"{function}: expected a shape [ranks >= 1, a multiple of 8] for '{argument}', got "
            f"{tuple(rows.shape)}. Pad every rank's payload to the same length."
        )
        raise ValueError(msg)
    check_aligned(function, argument, rows)


def check_aligned(function: str, argument: str, value: Tensor) -> None:
    """Raise if sections cannot be read and written there: on a GPU that is done in words."""
    if value.is_cuda and value.data_ptr() % 8 != 0:
        msg = (
            f"{function}: expected a tensor that starts at a multiple of 8 bytes of a GPU's memory "
            f"for '{argument}', got address {value.data_ptr():#x}. Pass a .clone()."
        )
        raise ValueError(msg)


def check_offset(function: str, offset: Any, row_length: int, section_length: int) -> None:
    """Raise unless a whole section can be at `offset` of a row."""
    check_int(function, "offset", offset, 0, row_length)
    if offset % 8 != 0 or offset + section_length > row_length:
        msg = (
            f"{function}: expected a multiple of 8 for 'offset', with {section_length} bytes from "
            f"there in rows of {row_length}, got {offset}."
        )
        raise ValueError(msg)


def check_skip(function: str, skip: Any, num_ranks: int) -> None:
    """Raise unless `skip` lists ranks."""
    if not isinstance(skip, (list, tuple, set, frozenset, range)):
        msg = f"{function}: expected a list of ranks for 'skip', got {type(skip).__name__}."
        raise TypeError(msg)
    for rank in skip:
        check_int(function, "skip", rank, 0, num_ranks - 1)


def check_list(function: str, argument: str, value: Any, length: int) -> None:
    """Raise unless `value` is a list with an entry for each row of 'rows'."""
    if not isinstance(value, (list, tuple)):
        msg = f"{function}: expected a list for '{argument}', got {type(value).__name__}."
        raise TypeError(msg)
    if len(value) != length:
        msg = (
            f"{function}: expected {length} entries for '{argument}', one for each row of 'rows', "
            f"got {len(value)}."
        )
        raise ValueError(msg)
