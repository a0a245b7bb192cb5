"""The twins of the calls in `top_k_kernels.py`: the same, one after the other, in plain PyTorch.

What is done to one parameter is in `top_k_reference.py`, and share by share in
`shares_reference.py`. Numbers are read here, so CUDA tensors are waited for.

Shapes: F shares that are not empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from . import shares_reference, top_k_reference
from .sections import Sections, ShareSections
from .selection import Selection


def select(selections: Sequence[Selection]) -> Tensor:
    """Do what `top_k_kernels.select` does. Returns [F, 2], int64."""
    report: list[tuple[int, int]] = []
    for selection in selections:
        thresholds, num_nonfinite = shares_reference.select_shares(
            selection.grad,
            selection.residual,
            ks=selection.ks,
            scale=selection.scale,
            value_dtype=selection.value_dtype,
            hints=selection.hints,
            accumulated=selection.accumulated,
            rows=selection.rows,
            offset=selection.offset,
        )
        for share in range(selection.num_filled):
            # Of all shares together, since only their sum is told
            report.append((thresholds[share], 0 if share else num_nonfinite))
    return _tensor_of(report, selections[0].residual.device)


def add(sections: Sequence[Sections], *, scale: float) -> Tensor:
    """Do what `top_k_kernels.add` does. Returns [len(sections), 2], int64."""

    def add_one(each: Sections, out: Tensor) -> tuple[int, int]:
        options: dict[str, Any] = {
            "offset": each.offset,
            "value_dtype": each.value_dtype,
            "skip": each.skip,
        }
        if isinstance(each, ShareSections):
            return shares_reference.add_shares(
                each.rows, ks=each.ks, scale=scale, out=out, **options
            )
        return top_k_reference.add_selected(
            each.rows, num_elements=out.shape[0], k=each.k, scale=scale, out=out, **options
        )

    return _all_or_none(add_one, sections)


def clear(sections: Sequence[ShareSections]) -> Tensor:
    """Do what `top_k_kernels.clear` does. Returns [len(sections), 2], int64."""
    return _all_or_none(partial(_change, shares_reference.clear_shares), sections)


def restore(sections: Sequence[ShareSections]) -> Tensor:
    """Do what `top_k_kernels.restore` does. Returns [len(sections), 2], int64."""
    return _all_or_none(partial(_change, shares_reference.restore_shares), sections)


def _change(
    change_shares: Callable[..., tuple[int, int]], sections: ShareSections, array: Tensor
) -> tuple[int, int]:
    return change_shares(
        sections.rows,
        offset=sections.offset,
        ks=sections.ks,
        value_dtype=sections.value_dtype,
        tensor=array,
    )


@torch.no_grad()
def _all_or_none(
    change: Callable[[Any, Tensor], tuple[int, int]], sections: Sequence[Sections]
) -> Tensor:
    """Call change(sections, array) for all, on copies: nothing may change where one is corrupt."""
    arrays = [each.array.clone() for each in sections]
    report = [change(each, array) for each, array in zip(sections, arrays, strict=True)]
    if all(problem == 0 for _, problem in report):
        for each, array in zip(sections, arrays, strict=True):
            each.array.copy_(array)
    return _tensor_of(report, sections[0].array.device)


def _tensor_of(report: list[tuple[int, int]], device: torch.device) -> Tensor:
    return torch.tensor(report, dtype=torch.int64, device=device)
