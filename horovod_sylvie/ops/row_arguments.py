"""The checks of the row ops' arguments. Every text names function, argument, expectation and cure.

Wrong kinds and dtypes are TypeErrors; wrong shapes, devices, layouts and ranges ValueErrors.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

_FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)
_CODES: Final = ("minmax", "centroid")


def check_bits(function: str, bits: Any) -> None:
    """Raise unless `bits` is 1, 2, 4 or 8."""
    if not isinstance(bits, int) or isinstance(bits, bool) or bits not in (1, 2, 4, 8):
        msg = f"{function}: expected 1, 2, 4 or 8 for 'bits', got {bits!r}."
        raise ValueError(msg)


def check_code(function: str, code: Any, bits: int) -> None:
    """Raise unless `code` exists and goes with `bits`."""
    if code not in _CODES:
        msg = f"{function}: expected 'minmax' or 'centroid' for 'code', got {code!r}."
        raise ValueError(msg)
    if code == "centroid" and bits != 1:
        msg = (
            f"{function}: expected 1 for 'bits' with code='centroid', got {bits}. "
            "Use code='minmax' for more bits."
        )
        raise ValueError(msg)


def check_key(function: str, key: Any) -> None:
    """Raise unless `key` is an unsigned 64-bit integer."""
    if not isinstance(key, int) or isinstance(key, bool):
        msg = f"{function}: expected an int for 'key', got {type(key).__name__}."
        raise TypeError(msg)
    if not 0 <= key < 1 << 64:
        msg = f"{function}: expected a number in [0, 2**64) for 'key', got {key}."
        raise ValueError(msg)


def check_num_features(function: str, num_features: Any) -> None:
    """Raise unless `num_features` is a positive integer."""
    if not isinstance(num_features, int) or isinstance(num_features, bool) or num_features < 1:
        msg = f"{function}: expected an int of at least 1 for 'num_features', got {num_features!r}."
        raise ValueError(msg)


def check_matrix(function: str, argument: str, value: Any) -> None:
    """Raise unless `value` is a dense tensor with two dimensions."""
    _check_tensor(function, argument, value)
    if value.dim() != 2:
        msg = (
            f"{function}: expected two dimensions for '{argument}', got shape "
            f"{tuple(value.shape)}. Reshape it to one row per node."
        )
        raise ValueError(msg)


def check_features(function: str, argument: str, value: Any) -> None:
    """Raise unless `value` is a matrix of float32, float16 or bfloat16 with a column."""
    check_matrix(function, argument, value)
    if value.dtype not in _FLOATS:
        msg = (
            f"{function}: expected float32, float16 or bfloat16 for '{argument}', got "
            f"{value.dtype}. Convert it with .float()."
        )
        raise TypeError(msg)
    if value.shape[1] == 0:
        msg = (
            f"{function}: expected at least one feature for '{argument}', got shape "
            f"{tuple(value.shape)}. Rows without features need no packing."
        )
        raise ValueError(msg)


def check_index(function: str, index: Any, num_rows: int, device: torch.device) -> int:
    """Raise unless `index` is None or a vector of int64; return how many rows it chooses.

    The numbers in it are checked where they are used.
    """
    if index is None:
        return num_rows
    _check_tensor(function, "index", index)
    if index.dtype != torch.int64:
        msg = f"{function}: expected int64 for 'index', got {index.dtype}. Convert it with .long()."
        raise TypeError(msg)
    if index.dim() != 1:
        msg = (
            f"{function}: expected one dimension for 'index', got shape {tuple(index.shape)}. "
            "Flatten it."
        )
        raise ValueError(msg)
    _check_device(function, "index", index, device)
    return int(index.shape[0])


def check_array(
    function: str,
    argument: str,
    value: Any,
    *,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    """Raise unless `value` is a contiguous tensor of exactly this shape, dtype and device."""
    _check_tensor(function, argument, value)
    if value.dtype != dtype:
        msg = f"{function}: expected {dtype} for '{argument}', got {value.dtype}."
        raise TypeError(msg)
    if tuple(value.shape) != shape:
        msg = (
            f"{function}: expected shape {shape} for '{argument}', got {tuple(value.shape)}. "
            "packed_row_bytes gives the width of packed rows."
        )
        raise ValueError(msg)
    if not value.is_contiguous():
        msg = (
            f"{function}: expected a contiguous tensor for '{argument}', got strides "
            f"{value.stride()}. Pass whole rows, or a .contiguous() copy."
        )
        raise ValueError(msg)
    _check_device(function, argument, value, device)


def _check_tensor(function: str, argument: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        msg = f"{function}: expected a tensor for '{argument}', got {type(value).__name__}."
        raise TypeError(msg)
    if value.layout != torch.strided:
        msg = (
            f"{function}: expected a dense tensor for '{argument}', got layout {value.layout}. "
            "Convert it with .to_dense()."
        )
        raise TypeError(msg)


def _check_device(function: str, argument: str, value: Tensor, device: torch.device) -> None:
    if value.device != device:
        msg = (
            f"{function}: expected device {device} for '{argument}', got {value.device}. "
            "Move it to the other arguments' device."
        )
        raise ValueError(msg)
