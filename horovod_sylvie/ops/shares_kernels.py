"""The calls of the native kernels for shares, on arguments that are checked: tensors to addresses.

Shapes: P shares, B bytes of a row, D gradient elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .kernel_devices import DTYPE_NAMES


def select_shares(
    native: Any,
    grad: Tensor | None,
    residual: Tensor,
    *,
    ks: Sequence[int],
    scale: float,
    value_dtype: torch.dtype,
    hints: Sequence[int],
    accumulated: Tensor,
    rows: Tensor,
    offset: int,
    instruction_set: str | None = None,
) -> tuple[list[int], int]:
    """Call `_native.select_shares`, whose stub says what it returns.

    Args:
        native: The native library.
        grad: [D], float32, float16 or bfloat16; or None.
        residual: [D], float32.
        ks: Number of selected elements of each share. P entries
        scale: Factor of `grad`.
        value_dtype: torch.float32 or torch.bfloat16.
        hints: In [0, 2**32). P entries
        accumulated: Written; may be `residual`. [D], float32.
        rows: Their sections are written. [P, B], uint8.
        offset: Where the section starts in each row.
        instruction_set: Forces one; None for the best. For tests and benchmarks.
    """
    outcome: tuple[list[int], int] = native.select_shares(
        grad=0 if grad is None else grad.data_ptr(),
        dtype="float32" if grad is None else DTYPE_NAMES[grad.dtype],
        residual=residual.data_ptr(),
        num_elements=residual.shape[0],
        ks=list(ks),
        scale=scale,
        value_dtype=DTYPE_NAMES[value_dtype],
        hints=list(hints),
        accumulated=accumulated.data_ptr(),
        rows=rows.data_ptr(),
        rows_bytes=rows.nbytes,
        offset=offset,
        num_threads=torch.get_num_threads(),
        instruction_set=instruction_set,
    )
    return outcome


def add_shares(
    native: Any,
    rows: Tensor,
    *,
    offset: int,
    ks: Sequence[int],
    value_dtype: torch.dtype,
    scale: float,
    out: Tensor,
    skip: Sequence[int],
    instruction_set: str | None = None,
) -> tuple[int, int]:
    """Call `_native.add_shares`, whose stub says what it returns.

    Args:
        native: The native library.
        rows: [P, B], uint8.
        offset: Where the section starts in each row.
        ks: Number of selected elements of each share. P entries
        value_dtype: torch.float32 or torch.bfloat16.
        scale: Factor of every value.
        out: Written. [D], float32, float16 or bfloat16.
        skip: Owners that are left out.
        instruction_set: Forces one; None for the best. For tests and benchmarks.
    """
    outcome: tuple[int, int] = native.add_shares(
        rows=rows.data_ptr(),
        rows_bytes=rows.nbytes,
        offset=offset,
        num_elements=out.shape[0],
        ks=list(ks),
        value_dtype=DTYPE_NAMES[value_dtype],
        scale=scale,
        out=out.data_ptr(),
        dtype=DTYPE_NAMES[out.dtype],
        skip=list(skip),
        num_threads=torch.get_num_threads(),
        instruction_set=instruction_set,
    )
    return outcome


def clear_shares(
    native: Any,
    rows: Tensor,
    *,
    offset: int,
    ks: Sequence[int],
    value_dtype: torch.dtype,
    tensor: Tensor,
) -> tuple[int, int]:
    """Call `_native.clear_shares`, whose stub says what it returns."""
    outcome: tuple[int, int] = native.clear_shares(
        rows=rows.data_ptr(),
        rows_bytes=rows.nbytes,
        offset=offset,
        num_elements=tensor.shape[0],
        ks=list(ks),
        value_dtype=DTYPE_NAMES[value_dtype],
        tensor=tensor.data_ptr(),
    )
    return outcome
