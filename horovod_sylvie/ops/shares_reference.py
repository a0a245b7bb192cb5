"""The slow twins of the kernels for shares: what they do, in plain PyTorch, bit for bit.

Each does share by share what the twin of a whole parameter does (`top_k_reference.py`). No
argument is checked here, but sections are.

Shapes: P shares, B bytes of a row, D gradient elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from . import top_k_reference
from .shares_layout import elements_of_share, places_of_share
from .top_k_section import section_layout


@torch.no_grad()
def select_shares(
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
) -> tuple[list[int], int]:
    """Do what `_native.select_top_k` does to one array.

    Returns:
        The threshold of each share, the hint of an empty one; and how many sums were not finite.
    """
    thresholds, num_nonfinite = list(hints), 0
    filled = _filled_shares(residual.numel(), ks, value_dtype, rows, offset)
    for share, places, section in filled:
        left = torch.empty(places.numel(), device=residual.device)
        thresholds[share], count = top_k_reference.select_top_k(
            None if grad is None else grad[places],
            residual[places],
            k=ks[share],
            scale=scale,
            value_dtype=value_dtype,
            accumulated=left,
            section=section,
        )
        num_nonfinite += count
        accumulated[places] = left
    return thresholds, num_nonfinite


@torch.no_grad()
def add_shares(
    rows: Tensor,
    *,
    offset: int,
    ks: Sequence[int],
    value_dtype: torch.dtype,
    scale: float,
    out: Tensor,
    skip: Sequence[int],
) -> tuple[int, int]:
    """Do what `_native.add_selected` does to one parameter, and return what it reports."""
    factor = torch.tensor(scale, dtype=torch.float32, device=out.device)
    total = torch.zeros(out.numel(), dtype=torch.float32, device=out.device)
    for share, places, section in _filled_shares(out.numel(), ks, value_dtype, rows, offset):
        if share in skip:
            continue
        selected = top_k_reference.read_section(
            section, num_elements=places.numel(), k=ks[share], value_dtype=value_dtype
        )
        if isinstance(selected, int):
            return share, selected
        total[places[selected.elements]] += selected.values * factor
    out.copy_(total)
    return -1, 0


@torch.no_grad()
def clear_shares(
    rows: Tensor, *, offset: int, ks: Sequence[int], value_dtype: torch.dtype, tensor: Tensor
) -> tuple[int, int]:
    """Do what `_native.clear_selected` does to one parameter, and return what it reports."""
    selected = _read_all(tensor.numel(), ks, value_dtype, rows, offset)
    if isinstance(selected, tuple):
        return selected
    for places, _ in selected:
        tensor[places] = 0.0
    return -1, 0


@torch.no_grad()
def restore_shares(
    rows: Tensor, *, offset: int, ks: Sequence[int], value_dtype: torch.dtype, tensor: Tensor
) -> tuple[int, int]:
    """Do what `_native.restore_selected` does to one parameter, and return what it reports."""
    selected = _read_all(tensor.numel(), ks, value_dtype, rows, offset)
    if isinstance(selected, tuple):
        return selected
    for places, values in selected:
        tensor[places] += values
    return -1, 0


def _read_all(
    num_elements: int, ks: Sequence[int], value_dtype: torch.dtype, rows: Tensor, offset: int
) -> list[tuple[Tensor, Tensor]] | tuple[int, int]:
    """Return places and values of all shares, or the first that is corrupt and what is wrong."""
    found = []
    for share, places, section in _filled_shares(num_elements, ks, value_dtype, rows, offset):
        selected = top_k_reference.read_section(
            section, num_elements=places.numel(), k=ks[share], value_dtype=value_dtype
        )
        if isinstance(selected, int):
            return share, selected
        found.append((places[selected.elements], selected.values))
    return found


def _filled_shares(
    num_elements: int, ks: Sequence[int], value_dtype: torch.dtype, rows: Tensor, offset: int
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield the number, the places and the section of each share that is not empty."""
    for share, k in enumerate(ks):
        size = elements_of_share(num_elements, len(ks), share)
        if size == 0:
            return
        nbytes = section_layout(size, k, value_dtype).nbytes
        places = places_of_share(num_elements, len(ks), share, device=rows.device)
        yield share, places, rows[share, offset : offset + nbytes]
