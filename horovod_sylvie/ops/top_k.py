"""Error feedback and top-k: move the largest elements of a gradient into a section of bytes.

The public doors, those of `selected.py` included, which check their arguments and choose between
the kernel (cpp/) and its twin (`top_k_reference.py`). No state: a residual is the caller's. What a
section's bytes mean is written down in `top_k_section.py`.

Shapes: D gradient elements, K selected.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import top_k_kernels, top_k_twins
from .kernel_devices import kernel_or_twin
from .select_report import SelectReport, SelectValues, SharesReport
from .selected import add_selected, clear_selected, restore_selected
from .selection import Selection
from .top_k_arguments import (
    MAX_ELEMENTS,
    check_aligned,
    check_int,
    check_scale,
    check_section_shape,
    check_sums,
    check_vector,
)
from .top_k_section import BLOCK_ELEMENTS, section_layout

__all__ = [
    "BLOCK_ELEMENTS",
    "SelectReport",
    "add_selected",
    "clear_selected",
    "restore_selected",
    "section_bytes",
    "select_top_k",
]


def section_bytes(num_elements: int, k: int, value_dtype: torch.dtype) -> int:
    """Return the bytes of one section; `top_k_section.py` has the formula.

    Args:
        num_elements: Number of elements D, at least 1.
        k: Number of selected elements K, in [1, D].
        value_dtype: torch.float32 or torch.bfloat16.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of its range.
    """
    check_section_shape("section_bytes", num_elements, k, value_dtype)
    return section_layout(num_elements, k, value_dtype).nbytes


def select_top_k(
    grad: Tensor | None,
    residual: Tensor,
    *,
    k: int,
    scale: float = 1.0,
    value_dtype: torch.dtype,
    hint: int = 0,
    accumulated: Tensor,
    section: Tensor,
) -> SelectReport:
    """Add a gradient to the residual, and move the k largest sums into a section.

    A sum is residual + grad * scale, each operation rounded to float32; where it is not finite, it
    is the residual. The k sums of largest magnitude are selected, the lowest index first among
    equals. Their values are rounded to `value_dtype`, to nearest and to finite numbers, and what
    rounding left stays: sum == value + accumulated, exactly.

    Args:
        grad: New gradient, None for none. [D], float32, float16 or bfloat16, contiguous.
        residual: What was not sent, finite. [D], float32, contiguous.
        k: Number of selected elements K, in [1, D].
        scale: Factor of `grad`, rounded to float32.
        value_dtype: torch.float32, or torch.bfloat16 for half the bytes.
        hint: `threshold_bits` of an earlier call, 0 for none. Changes the speed only.
        accumulated: Written; `residual` itself, or separate memory. [D], float32, contiguous.
        section: Written. [section_bytes(D, K, value_dtype)], uint8, contiguous.

    Returns:
        The threshold, and how many elements of `grad` were dropped. Of CUDA tensors: whoever reads
        a number waits for the device, and nothing else does.

    Raises:
        TypeError: If an argument is of the wrong kind or dtype.
        ValueError: If an argument has the wrong shape, device, layout or range.

    Note:
        Mutates `accumulated` and `section`; no other arguments may overlap. Does not go through
        autograd. Uses `torch.get_num_threads()` threads; the bits are the same for any number.
    """
    name = "select_top_k"
    check_vector(name, "residual", residual, (torch.float32,))
    num_elements, device = residual.shape[0], residual.device
    check_int(name, "residual.numel()", num_elements, 1, MAX_ELEMENTS)
    check_section_shape(name, num_elements, k, value_dtype)
    check_scale(name, scale)
    check_int(name, "hint", hint, 0, (1 << 32) - 1)
    check_sums(name, grad, residual, accumulated)
    nbytes = section_layout(num_elements, k, value_dtype).nbytes
    check_vector(name, "section", section, (torch.uint8,), length=nbytes, device=device)
    check_aligned(name, "section", section)
    selection = Selection(
        grad=grad,
        residual=residual,
        ks=(k,),
        scale=scale,
        value_dtype=value_dtype,
        hints=(hint,),
        accumulated=accumulated,
        rows=section.view(1, nbytes),
        offset=0,
    )
    native = top_k_kernels.native_for(device)
    select = kernel_or_twin("select", native, top_k_kernels, top_k_twins)
    return SelectReport(SharesReport(SelectValues(select([selection])), 0, 1, 1))
