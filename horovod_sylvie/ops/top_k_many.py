"""Many parameters at once: on a CUDA device, one sequence of launches for all of them.

Doors, which check their arguments and choose between the kernels (cpp/, cuda/) and their twins
(`top_k_twins.py`). What is done to one parameter is what `select_shares`, `add_selected`,
`add_shares` and `clear_shares` do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from . import top_k_kernels, top_k_twins
from .kernel_devices import kernel_or_twin
from .sections import RankSections, Sections, ShareSections, check_sections, raise_if_corrupt
from .select_report import SelectionsReport, SelectValues, SharesReport
from .selection import Selection, check_selection
from .top_k_arguments import FLOATS, check_scale

__all__ = [
    "RankSections",
    "Selection",
    "SelectionsReport",
    "ShareSections",
    "SharesReport",
    "add_many",
    "clear_many",
    "select_many",
]


def select_many(selections: Sequence[Selection]) -> SelectionsReport:
    """Do what `select_shares` does, many times.

    Args:
        selections: At least one, all on one device; nothing that one of them writes may overlap
            with another's.

    Raises:
        TypeError: If an argument is of the wrong kind or dtype.
        ValueError: If an argument has the wrong shape, device, layout or range.

    Note:
        Mutates what they say. Waits for no device; whoever reads a number of the report does.
    """
    name = "select_many"
    for selection in selections:
        check_selection(name, selection)
    device = _device_of(name, [selection.residual for selection in selections])
    values = _kernel_or_twin("select", device)(selections)
    return SelectionsReport(
        SelectValues(values),
        [len(selection.ks) for selection in selections],
        [selection.num_filled for selection in selections],
    )


def add_many(sections: Sequence[Sections], *, scale: float) -> None:
    """Do what `add_selected` and `add_shares` do, many times.

    Args:
        sections: At least one, all on one device; their arrays are written.
        scale: Factor of every value, rounded to float32.

    Raises:
        TypeError: If an argument is of the wrong kind or dtype.
        CorruptSectionError: If a section is corrupt; all arrays are unchanged then.
        ValueError: If an argument has the wrong shape, device, layout or range.

    Note:
        Of CUDA tensors, the report on the sections is waited for, once.
    """
    name = "add_many"
    for each in sections:
        check_sections(name, each, FLOATS)
    check_scale(name, scale)
    device = _device_of(name, [each.array for each in sections])
    raise_if_corrupt(name, sections, _kernel_or_twin("add", device)(sections, scale=scale))


def clear_many(sections: Sequence[ShareSections]) -> None:
    """Do what `clear_shares` does, many times.

    Args:
        sections: At least one, all on one device; their arrays, of float32, are mutated.

    Raises:
        TypeError: If an argument is of the wrong kind or dtype.
        CorruptSectionError: If a section is corrupt; all arrays are unchanged then.
        ValueError: If an argument has the wrong shape, device, layout or range.

    Note:
        Of CUDA tensors, the report on the sections is waited for, once.
    """
    name = "clear_many"
    for each in sections:
        check_sections(name, each, (torch.float32,))
    device = _device_of(name, [each.array for each in sections])
    raise_if_corrupt(name, sections, _kernel_or_twin("clear", device)(sections))


def _device_of(function: str, tensors: Sequence[Tensor]) -> torch.device:
    devices = {tensor.device for tensor in tensors}
    if len(devices) != 1:
        msg = (
            f"{function}: expected tensors on one device, got {sorted(map(str, devices))}. Make "
            "one call for each device."
        )
        raise ValueError(msg)
    return devices.pop()


def _kernel_or_twin(operation: str, device: torch.device) -> Callable[..., Tensor]:
    native = top_k_kernels.native_for(device)
    return kernel_or_twin(operation, native, top_k_kernels, top_k_twins)
