"""The calls of the native top-k kernels, on arguments that are checked: tensors to addresses.

Each is one call for many selections, or the sections of many parameters. What they met comes back
as a tensor of the device that runs them, which nobody has waited for.

Shapes: P rows, B bytes of a row, D elements of an array, F shares that are not empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .kernel_devices import DTYPE_NAMES, made_current, native_on, stream_of
from .sections import Sections, ShareSections
from .selection import Selection


def native_for(device: torch.device) -> Any | None:
    """Return the library that has the kernels for a device, or None, logged once, without one."""
    return native_on(device, "selecting elements of")


def select(
    native: Any,
    selections: Sequence[Selection],
    *,
    instruction_set: str | None = None,
    stream: int | None = None,
) -> Tensor:
    """Call `_native.select_top_k`, whose stub says what it reports.

    Args:
        native: The native library.
        selections: What is selected; all on one device.
        instruction_set: Forces one; None for the best. For tests and benchmarks.
        stream: Where to run; None for the current stream of a GPU, and for the CPU. For tests.

    Returns:
        The report of each filled share. [F, 2], int64
    """
    device = selections[0].residual.device
    stream = stream_of(device) if stream is None else stream
    calls = [selection_call(native, selection) for selection in selections]
    num_filled = sum(selection.num_filled for selection in selections)
    report = torch.empty(num_filled, 2, dtype=torch.int64, device=device)
    _memory, workspace = _workspace(native.select_workspace_bytes, calls, stream, device)
    with made_current(device):
        native.select_top_k(
            calls,
            report=report.data_ptr(),
            report_bytes=report.nbytes,
            num_threads=torch.get_num_threads(),
            stream=stream,
            instruction_set=instruction_set,
            **workspace,
        )
    return report


def add(
    native: Any,
    sections: Sequence[Sections],
    *,
    scale: float,
    instruction_set: str | None = None,
    stream: int | None = None,
) -> Tensor:
    """Call `_native.add_selected`, whose stub says what it reports.

    Args:
        native: The native library.
        sections: What is added up into their arrays; all on one device.
        scale: Factor of every value.
        instruction_set: As of `select`.
        stream: As of `select`.

    Returns:
        The report of each array. [len(sections), 2], int64
    """
    threads = torch.get_num_threads()
    return _read_sections(
        native,
        native.add_selected,
        sections,
        stream,
        scale=scale,
        num_threads=threads,
        instruction_set=instruction_set,
    )


def clear(native: Any, sections: Sequence[ShareSections], *, stream: int | None = None) -> Tensor:
    """Call `_native.clear_selected`; see `add`."""
    return _read_sections(native, native.clear_selected, sections, stream)


def restore(native: Any, sections: Sequence[ShareSections], *, stream: int | None = None) -> Tensor:
    """Call `_native.restore_selected`; see `add`."""
    return _read_sections(native, native.restore_selected, sections, stream)


def _read_sections(
    native: Any,
    function: Callable[..., None],
    sections: Sequence[Sections],
    stream: int | None,
    **options: Any,
) -> Tensor:
    device = sections[0].array.device
    stream = stream_of(device) if stream is None else stream
    calls = [sections_call(native, each) for each in sections]
    report = torch.empty(len(calls), 2, dtype=torch.int64, device=device)
    _memory, workspace = _workspace(native.sections_workspace_bytes, calls, stream, device)
    with made_current(device):
        function(
            calls,
            report=report.data_ptr(),
            report_bytes=report.nbytes,
            stream=stream,
            **workspace,
            **options,
        )
    return report


def _workspace(
    needed: Callable[[list[Any]], int], calls: list[Any], stream: int | None, device: torch.device
) -> tuple[Tensor | None, dict[str, int]]:
    """Return memory for a launch, which goes when its owner goes, and how `_native` takes it.

    What comes behind the launch in the stream may use that memory again.
    """
    if stream is None:
        return None, {}
    memory = torch.empty(needed(calls), dtype=torch.uint8, device=device)
    return memory, {"workspace": memory.data_ptr(), "workspace_bytes": memory.nbytes}


def selection_call(native: Any, selection: Selection) -> Any:
    """Return a selection as `_native` takes it."""
    grad, residual = selection.grad, selection.residual
    return native.Selection(
        grad=0 if grad is None else grad.data_ptr(),
        dtype="float32" if grad is None else DTYPE_NAMES[grad.dtype],
        residual=residual.data_ptr(),
        num_elements=residual.shape[0],
        ks=list(selection.ks),
        scale=selection.scale,
        value_dtype=DTYPE_NAMES[selection.value_dtype],
        hints=list(selection.hints),
        accumulated=selection.accumulated.data_ptr(),
        rows=selection.rows.data_ptr(),
        rows_bytes=selection.rows.nbytes,
        offset=selection.offset,
    )


def sections_call(native: Any, sections: Sections) -> Any:
    """Return the sections of a parameter as `_native` takes them."""
    return native.Sections(
        rows=sections.rows.data_ptr(),
        rows_bytes=sections.rows.nbytes,
        offset=sections.offset,
        num_elements=sections.array.shape[0],
        ks=list(sections.ks),
        num_shares=sections.num_shares,
        value_dtype=DTYPE_NAMES[sections.value_dtype],
        skip=list(sections.skip),
        array=sections.array.data_ptr(),
        dtype=DTYPE_NAMES[sections.array.dtype],
    )
