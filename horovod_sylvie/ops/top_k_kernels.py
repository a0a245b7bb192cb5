"""The calls of the native top-k kernels, on arguments that are checked: tensors to addresses.

Shapes: P ranks, B payload bytes, D gradient elements, K selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .kernel_devices import DTYPE_NAMES, native_on


def native_for(device: torch.device) -> Any | None:
    """Return the library that has the kernels for a device, or None, logged once, without one."""
    return native_on(device, "selecting elements of")


def select_top_k(
    native: Any,
    grad: Tensor | None,
    residual: Tensor,
    *,
    k: int,
    scale: float,
    value_dtype: torch.dtype,
    hint: int,
    accumulated: Tensor,
    section: Tensor,
    instruction_set: str | None = None,
) -> tuple[int, int]:
    """Call `_native.select_top_k`, whose stub says what it returns.

    Args:
        native: The native library.
        grad: [D], float32, float16 or bfloat16; or None.
        residual: [D], float32.
        k: Number of selected elements K.
        scale: Factor of `grad`.
        value_dtype: torch.float32 or torch.bfloat16.
        hint: In [0, 2**32).
        accumulated: Written; may be `residual`. [D], float32.
        section: Written. [section_bytes(D, K, value_dtype)], uint8.
        instruction_set: Forces one; None for the best. For tests and benchmarks.
    """
    outcome: tuple[int, int] = native.select_top_k(
        grad=0 if grad is None else grad.data_ptr(),
        dtype="float32" if grad is None else DTYPE_NAMES[grad.dtype],
        residual=residual.data_ptr(),
        num_elements=residual.shape[0],
        k=k,
        scale=scale,
        value_dtype=DTYPE_NAMES[value_dtype],
        hint=hint,
        accumulated=accumulated.data_ptr(),
        section=section.data_ptr(),
        section_bytes=section.nbytes,
        num_threads=torch.get_num_threads(),
        instruction_set=instruction_set,
    )
    return outcome


def restore_selected(
    native: Any,
    section: Tensor,
    *,
    num_elements: int,
    k: int,
    value_dtype: torch.dtype,
    residual: Tensor,
) -> int:
    """Call `_native.restore_selected`, whose stub says what it returns."""
    problem: int = native.restore_selected(
        section=section.data_ptr(),
        section_bytes=section.nbytes,
        num_elements=num_elements,
        k=k,
        value_dtype=DTYPE_NAMES[value_dtype],
        residual=residual.data_ptr(),
    )
    return problem


def clear_selected(
    native: Any,
    section: Tensor,
    *,
    num_elements: int,
    k: int,
    value_dtype: torch.dtype,
    tensor: Tensor,
) -> int:
    """Call `_native.clear_selected`, whose stub says what it returns."""
    problem: int = native.clear_selected(
        section=section.data_ptr(),
        section_bytes=section.nbytes,
        num_elements=num_elements,
        k=k,
        value_dtype=DTYPE_NAMES[value_dtype],
        tensor=tensor.data_ptr(),
    )
    return problem


def add_selected(
    native: Any,
    payloads: Tensor,
    *,
    offset: int,
    num_elements: int,
    k: int,
    value_dtype: torch.dtype,
    scale: float,
    out: Tensor,
    skip: Sequence[int],
    instruction_set: str | None = None,
) -> tuple[int, int]:
    """Call `_native.add_selected`, whose stub says what it returns.

    Args:
        native: The native library.
        payloads: [P, B], uint8.
        offset: Where the section starts in each row.
        num_elements: Number of elements D.
        k: Number of selected elements K of each rank.
        value_dtype: torch.float32 or torch.bfloat16.
        scale: Factor of every value.
        out: Written. [D], float32, float16 or bfloat16.
        skip: Ranks that are left out.
        instruction_set: Forces one; None for the best. For tests and benchmarks.
    """
    outcome: tuple[int, int] = native.add_selected(
        payloads=payloads.data_ptr(),
        payload_bytes=payloads.nbytes,
        num_ranks=payloads.shape[0],
        offset=offset,
        num_elements=num_elements,
        k=k,
        value_dtype=DTYPE_NAMES[value_dtype],
        scale=scale,
        out=out.data_ptr(),
        dtype=DTYPE_NAMES[out.dtype],
        skip=list(skip),
        num_threads=torch.get_num_threads(),
        instruction_set=instruction_set,
    )
    return outcome
