"""The slow twins of the top-k kernels: what they do, in plain PyTorch, on any device, bit for bit.

The oracle of the tests, and what runs where there is no kernel. The bytes are laid out in
`top_k_section.py`. No argument is checked here, but sections are: they come from the wire.

Shapes: P ranks, B payload bytes, D gradient elements, K selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from .top_k_section import BLOCK_ELEMENTS, section_layout

# What is wrong with a section; 0 if nothing is
BAD_COUNTS: Final = 1
BAD_INDICES: Final = 2
BAD_VALUES: Final = 3

_MAGNITUDE: Final = 0x7FFFFFFF


class Selected(NamedTuple):
    """The selected elements of one parameter.

    Attributes:
        elements: Their numbers, ascending. [K], int64.
        values: Their values. [K], float32.
    """

    elements: Tensor
    values: Tensor


@torch.no_grad()
def select_top_k(
    grad: Tensor | None,
    residual: Tensor,
    *,
    k: int,
    scale: float,
    value_dtype: torch.dtype,
    accumulated: Tensor,
    section: Tensor,
) -> tuple[int, int]:
    """Do what `_native.select_top_k` does to one array; return threshold and number not finite."""
    total = residual
    num_nonfinite = 0
    if grad is not None:
        factor = torch.tensor(scale, dtype=torch.float32, device=grad.device)
        total = residual + grad.to(torch.float32) * factor
        finite = total.isfinite()
        num_nonfinite = int((~finite).sum())
        total = torch.where(finite, total, residual)
    magnitudes = total.view(torch.int32) & _MAGNITUDE
    threshold = magnitudes.topk(k, sorted=False).values.min()
    chosen = magnitudes > threshold
    ties = (magnitudes == threshold).nonzero()[:, 0]
    chosen[ties[: k - int(chosen.sum())]] = True
    index = chosen.nonzero()[:, 0]
    exact = total[index]
    coded = _to_value_dtype(exact, value_dtype)
    accumulated.copy_(total)
    accumulated[index] = exact - coded.to(torch.float32)
    _write_section(index, coded, residual.numel(), section)
    return int(threshold), num_nonfinite


def _to_value_dtype(exact: Tensor, value_dtype: torch.dtype) -> Tensor:
    """Round to nearest, to a finite number always."""
    coded = exact.to(value_dtype)
    largest = torch.finfo(value_dtype).max
    return coded.clamp(-largest, largest)


def _write_section(index: Tensor, coded: Tensor, num_elements: int, section: Tensor) -> None:
    layout = section_layout(num_elements, index.numel(), coded.dtype)
    counts = torch.bincount(index // BLOCK_ELEMENTS, minlength=layout.num_blocks)
    inside = index % BLOCK_ELEMENTS
    section.zero_()
    section[: layout.index_begin] = counts.to(torch.int32).view(torch.uint8)
    section[layout.index_begin : layout.index_end] = inside.to(torch.int16).view(torch.uint8)
    section[layout.values_begin : layout.values_end] = coded.view(torch.uint8)


def read_section(
    section: Tensor, *, num_elements: int, k: int, value_dtype: torch.dtype
) -> Selected | int:
    """Read a section that is not trusted; return what is wrong with it if something is.

    Args:
        section: [section_bytes(num_elements, k, value_dtype)], uint8.
        num_elements: Number of elements D.
        k: Number of selected elements K.
        value_dtype: torch.float32 or torch.bfloat16.
    """
    layout = section_layout(num_elements, k, value_dtype)
    # Copies: a view of wider elements must start at a multiple of their size
    counts = section[: layout.index_begin].clone().view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    blocks = torch.arange(layout.num_blocks, device=section.device)
    sizes = (num_elements - blocks * BLOCK_ELEMENTS).clamp(max=BLOCK_ELEMENTS)
    if bool((counts > sizes).any()) or int(counts.sum()) != k:
        return BAD_COUNTS
    inside = section[layout.index_begin : layout.index_end].clone().view(torch.int16)
    index = blocks.repeat_interleave(counts) * BLOCK_ELEMENTS + (inside.to(torch.int64) & 0xFFFF)
    if bool((index[1:] <= index[:-1]).any()) or int(index[-1]) >= num_elements:
        return BAD_INDICES
    values = section[layout.values_begin : layout.values_end].clone().view(value_dtype)
    if not bool(values.isfinite().all()):
        return BAD_VALUES
    return Selected(index, values.to(torch.float32))


@torch.no_grad()
def add_selected(
    payloads: Tensor,
    *,
    offset: int,
    num_elements: int,
    k: int,
    value_dtype: torch.dtype,
    scale: float,
    out: Tensor,
    skip: Sequence[int],
) -> tuple[int, int]:
    """Do what `_native.add_selected` does to one parameter, and return what it reports."""
    nbytes = section_layout(num_elements, k, value_dtype).nbytes
    factor = torch.tensor(scale, dtype=torch.float32, device=out.device)
    total = torch.zeros(num_elements, dtype=torch.float32, device=out.device)
    for rank, payload in enumerate(payloads):
        if rank in skip:
            continue
        selected = read_section(
            payload[offset : offset + nbytes],
            num_elements=num_elements,
            k=k,
            value_dtype=value_dtype,
        )
        if isinstance(selected, int):
            return rank, selected
        total[selected.elements] += selected.values * factor
    out.copy_(total)
    return -1, 0
