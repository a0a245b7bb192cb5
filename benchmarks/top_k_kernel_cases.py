"""The ops of gradients: error feedback in a steady state, and what is done with its sections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch
import torch_ways
from kernel_case import Case
from torch import Tensor

from horovod_sylvie.ops import top_k_kernels, top_k_twins
from horovod_sylvie.ops.checksum import checksum_kernel, checksum_twin
from horovod_sylvie.ops.sections import RankSections, ShareSections
from horovod_sylvie.ops.selection import Selection
from horovod_sylvie.ops.top_k import section_bytes
from horovod_sylvie.ops.top_k_reference import read_section

NUM_RANKS: Final = 4
_VALUE_DTYPE: Final = torch.float32
_ROW_ELEMENTS: Final = 64
# As in a ResNet-20: many small layers
MANY: Final = (*[16 * 16 * 9] * 7, *[32 * 32 * 9] * 6, *[64 * 64 * 9] * 6, *[64] * 40, 640)


def top_k_cases(
    native: Any, device: torch.device, num_elements: int, density: float
) -> Iterator[Case]:
    """Yield the cases of one layer.

    Args:
        native: The native library.
        device: Where to run.
        num_elements: D.
        density: K over D.
    """
    selection = _selection(native, device, num_elements, density)
    shape = f"{num_elements:,} at {100 * density:g} %"
    yield _select_case(native, [selection], "select_top_k", shape)
    top_k_kernels.select(native, [selection])
    k, section = selection.ks[0], selection.rows[0]
    yield from _section_cases(native, section, num_elements, k, shape)
    rows = section.expand(NUM_RANKS, -1).contiguous()
    out = torch.zeros(num_elements, device=device)
    sections = [RankSections(rows, 0, k, _VALUE_DTYPE, out)]
    pair = _read(section, num_elements, k)
    yield Case(
        op=f"add_selected, {NUM_RANKS} ranks",
        shape=shape,
        num_elements=num_elements,
        num_bytes=out.nbytes + rows.nbytes,
        kernel=partial(top_k_kernels.add, native, sections, scale=1.0 / NUM_RANKS),
        twin=partial(top_k_twins.add, sections, scale=1.0 / NUM_RANKS),
        torch_way=partial(torch_ways.add_selected, out, [pair] * NUM_RANKS, 1.0 / NUM_RANKS),
        written=[out],
        plain_name="zero_",
        plain=out.zero_,
    )


def many_case(native: Any, device: torch.device, density: float) -> Case:
    """Return the case of many small layers at once."""
    selections = [_selection(native, device, size, density) for size in MANY]
    shape = f"{len(MANY)} layers, {sum(MANY):,} at {100 * density:g} %"
    return _select_case(native, selections, "select_many", shape)


def checksum_case(native: Any, device: torch.device, num_bytes: int) -> Case:
    """Return the case of a payload's checksum."""
    rows = torch.randint(256, (1, num_bytes), dtype=torch.uint8, device=device)
    return Case(
        op="checksum_rows",
        shape=f"{num_bytes:,} bytes",
        num_elements=num_bytes // 8,
        num_bytes=num_bytes,
        kernel=partial(checksum_kernel, native, rows),
        twin=partial(checksum_twin, rows),
        torch_way=rows.view(torch.int64).sum,  # a weaker one
        written=[],
    )


def _select_case(native: Any, selections: Sequence[Selection], op: str, shape: str) -> Case:
    sizes = [len(each.residual) for each in selections]
    copies = [each.residual.clone() for each in selections]

    def with_torch() -> None:
        for each, residual in zip(selections, copies, strict=True):
            torch_ways.select(_grad(each), residual, each.ks[0])

    def add() -> None:
        for each, residual in zip(selections, copies, strict=True):
            residual.add_(_grad(each))

    return Case(
        op=op,
        shape=shape,
        num_elements=sum(sizes),
        num_bytes=3 * 4 * sum(sizes) + sum(each.rows.nbytes for each in selections),
        kernel=partial(top_k_kernels.select, native, selections),
        twin=partial(top_k_twins.select, selections),
        torch_way=with_torch,
        written=[tensor for each in selections for tensor in (each.accumulated, each.rows)],
        plain_name="add_",
        plain=add,
    )


def _section_cases(
    native: Any, section: Tensor, num_elements: int, k: int, shape: str
) -> Iterator[Case]:
    """Yield what is done to the selected elements only."""
    array = torch.randn(num_elements, device=section.device)
    sections = [ShareSections(section[None], 0, (k,), _VALUE_DTYPE, array)]
    index, values = _read(section, num_elements, k)
    yield Case(
        op="clear_selected",
        shape=shape,
        num_elements=k,
        num_bytes=section.nbytes + 4 * k,
        kernel=partial(top_k_kernels.clear, native, sections),
        twin=partial(top_k_twins.clear, sections),
        torch_way=partial(array.index_fill_, 0, index, 0.0),
        written=[array],
    )
    yield Case(
        op="restore_selected",
        shape=shape,
        num_elements=k,
        num_bytes=section.nbytes + 8 * k,
        kernel=partial(top_k_kernels.restore, native, sections),
        twin=partial(top_k_twins.restore, sections),
        torch_way=partial(array.index_add_, 0, index, values),
        written=[array],
    )


def _selection(native: Any, device: torch.device, num_elements: int, density: float) -> Selection:
    """Return a selection as in training: rows differ in scale, and the residual is larger."""
    k = max(1, round(num_elements * density))
    scales = (0.8 * torch.randn(-(-num_elements // _ROW_ELEMENTS), device=device)).exp()
    scales = scales.repeat_interleave(_ROW_ELEMENTS)[:num_elements]
    nbytes = section_bytes(num_elements, k, _VALUE_DTYPE)
    selection = Selection(
        grad=torch.randn(num_elements, device=device) * scales,
        residual=3.0 * torch.randn(num_elements, device=device) * scales,
        ks=(k,),
        scale=1.0,
        value_dtype=_VALUE_DTYPE,
        hints=(0,),
        accumulated=torch.empty(num_elements, device=device),
        rows=torch.empty(1, nbytes, dtype=torch.uint8, device=device),
        offset=0,
    )
    if device.type != "cpu":  # no hint is used there
        return selection
    threshold = int(top_k_kernels.select(native, [selection])[0, 0])
    return replace(selection, hints=(threshold,))


def _grad(selection: Selection) -> Tensor:
    if selection.grad is None:
        raise ValueError("_grad: expected a selection with a gradient, got one without.")
    return selection.grad


def _read(section: Tensor, num_elements: int, k: int) -> tuple[Tensor, Tensor]:
    """Return the indices and values of a section that a kernel wrote."""
    found = read_section(section, num_elements=num_elements, k=k, value_dtype=_VALUE_DTYPE)
    if isinstance(found, int):
        raise ValueError("_read: expected a section that a kernel wrote, got a corrupt one.")
    return found
