"""What is done with selected elements: add those of all ranks up, take them back, clear them.

Doors, which check their arguments and choose between the kernel (cpp/) and its twin
(`top_k_reference.py`). Sections come from the wire and are not trusted: whatever their bytes are,
nothing outside the tensors is touched. `top_k_section.py` says what the bytes mean.

Shapes: P ranks, B payload bytes, D gradient elements, K selected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from . import top_k_kernels, top_k_twins
from .kernel_devices import kernel_or_twin
from .sections import PROBLEMS, RankSections, ShareSections, raise_if_corrupt
from .top_k_arguments import (
    FLOATS,
    check_aligned,
    check_offset,
    check_rows,
    check_scale,
    check_section_shape,
    check_skip,
    check_vector,
)
from .top_k_section import section_layout


def add_selected(
    payloads: Tensor,
    *,
    offset: int,
    num_elements: int,
    k: int,
    value_dtype: torch.dtype,
    scale: float,
    out: Tensor,
    skip: Sequence[int] = (),
) -> None:
    """Sum the selected elements of all ranks into a dense gradient.

    An element is the sum of its values times `scale`, in float32, in the order of the ranks, from
    +0; then it is rounded to the dtype of `out`.

    Args:
        payloads: A row of bytes from each rank. [P, B], uint8, contiguous; B a multiple of 8.
        offset: Where this parameter's section starts in every row; a multiple of 8.
        num_elements: Number of elements D.
        k: Number of selected elements K of each rank.
        value_dtype: Of the sections' values.
        scale: Factor of every value, rounded to float32: 1 / P for the average.
        out: Written. [D], float32, float16 or bfloat16, contiguous.
        skip: Ranks whose bytes are not looked at.

    Raises:
        TypeError: If an argument is of the wrong kind or dtype.
        CorruptSectionError: If a rank's section is corrupt; `out` is unchanged then.
        ValueError: If an argument has the wrong shape, device, layout or range.

    Note:
        Uses `torch.get_num_threads()` threads; the bits are the same for any number. Of CUDA
        tensors, the report on the sections is waited for.
    """
    name = "add_selected"
    check_section_shape(name, num_elements, k, value_dtype)
    nbytes = section_layout(num_elements, k, value_dtype).nbytes
    check_rows(name, "payloads", payloads)
    check_offset(name, offset, payloads.shape[1], nbytes)
    check_scale(name, scale)
    check_skip(name, skip, payloads.shape[0])
    check_vector(name, "out", out, FLOATS, length=num_elements, device=payloads.device)
    sections = RankSections(payloads, offset, k, value_dtype, out, skip)
    report = _kernel_or_twin("add", out.device)([sections], scale=scale)
    raise_if_corrupt(name, [sections], report)


def restore_selected(
    section: Tensor, *, num_elements: int, k: int, value_dtype: torch.dtype, residual: Tensor
) -> None:
    """Undo a selection: add a section's values to what it left behind, which is exact.

    Args:
        section: What `select_top_k` wrote. [section_bytes(D, K, value_dtype)], uint8, contiguous.
        num_elements: Number of elements D.
        k: Number of selected elements K.
        value_dtype: Of the section's values.
        residual: Mutated. [D], float32, contiguous.

    Raises:
        TypeError: If an argument is of the wrong kind or dtype.
        ValueError: If an argument has the wrong shape, device, layout or range, or `section` is
            corrupt; `residual` is unchanged then.

    Note:
        A selected -0 comes back as +0.
    """
    name = "restore_selected"
    _check_section(name, section, num_elements, k, value_dtype, "residual", residual)
    sections = ShareSections(section.view(1, -1), 0, (k,), value_dtype, residual)
    _raise_if_corrupt(name, _kernel_or_twin("restore", section.device)([sections]))


def clear_selected(
    section: Tensor, *, num_elements: int, k: int, value_dtype: torch.dtype, tensor: Tensor
) -> None:
    """Set the elements that a section selects to +0.

    Args:
        section: What `select_top_k` wrote. [section_bytes(D, K, value_dtype)], uint8, contiguous.
        num_elements: Number of elements D.
        k: Number of selected elements K.
        value_dtype: Of the section's values.
        tensor: Mutated. [D], float32, contiguous.

    Raises:
        TypeError: If an argument is of the wrong kind or dtype.
        ValueError: If an argument has the wrong shape, device, layout or range, or `section` is
            corrupt; `tensor` is unchanged then.
    """
    name = "clear_selected"
    _check_section(name, section, num_elements, k, value_dtype, "tensor", tensor)
    sections = ShareSections(section.view(1, -1), 0, (k,), value_dtype, tensor)
    _raise_if_corrupt(name, _kernel_or_twin("clear", section.device)([sections]))


def _check_section(
    function: str,
    section: Tensor,
    num_elements: int,
    k: int,
    value_dtype: torch.dtype,
    argument: str,
    tensor: Tensor,
) -> None:
    check_section_shape(function, num_elements, k, value_dtype)
    nbytes = section_layout(num_elements, k, value_dtype).nbytes
    check_vector(function, "section", section, (torch.uint8,), length=nbytes)
    check_aligned(function, "section", section)
    check_vector(
        function, argument, tensor, (torch.float32,), length=num_elements, device=section.device
    )


def _raise_if_corrupt(function: str, report: Tensor) -> None:
    problem = int(report[0, 1])
    if problem != 0:
        msg = (
            f"{function}: expected bytes that select_top_k wrote for 'section', got a corrupt one: "
            f"{PROBLEMS[problem]}. Pass the 'num_elements', 'k' and 'value_dtype' of its call."
        )
        raise ValueError(msg)


def _kernel_or_twin(operation: str, device: torch.device) -> Callable[..., Tensor]:
    native = top_k_kernels.native_for(device)
    return kernel_or_twin(operation, native, top_k_kernels, top_k_twins)
