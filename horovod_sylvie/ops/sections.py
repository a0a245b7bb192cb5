"""The sections of one parameter, one in each row: what is added up, cleared and restored.

Sections come from the wire and are not trusted; `top_k_section.py` says what the bytes mean.

Shapes: P rows, B bytes of a row, D elements of the parameter, K selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from .selection import check_share_rows
from .shares_layout import elements_of_share
from .top_k_arguments import (
    check_offset,
    check_rows,
    check_section_shape,
    check_skip,
    check_vector,
)
from .top_k_section import section_layout

PROBLEMS: Final = (
    "",
    "its counts do not sum to 'k', or exceed their blocks",
    "its indices do not ascend inside their blocks",
    "it has a value that is not finite",
)


@dataclass(frozen=True)
class RankSections:
    """A section of the whole parameter from each rank.

    Attributes:
        rows: Bytes from each rank. [P, B], uint8, contiguous; B a multiple of 8
        offset: Where the section starts in each row; a multiple of 8.
        k: K.
        value_dtype: Of the sections' values.
        array: The array that they are about. [D], contiguous
        skip: Ranks whose bytes are not looked at.
    """

    rows: Tensor
    offset: int
    k: int
    value_dtype: torch.dtype
    array: Tensor
    skip: Sequence[int] = ()

    @property
    def ks(self) -> list[int]:
        """K of each row, P entries."""
        return [self.k] * self.rows.shape[0]

    @property
    def num_shares(self) -> int:
        """Of how many shares each row has one."""
        return 1


@dataclass(frozen=True)
class ShareSections:
    """A section of each share of the parameter (`shares_layout.py`), from its owner.

    Attributes:
        rows: Bytes of each share. [P, B], uint8, contiguous; B a multiple of 8
        offset: Where the section starts in each row; a multiple of 8.
        ks: K of each share; 0 of an empty one. P entries
        value_dtype: Of the sections' values.
        array: The array that they are about. [D], contiguous
        skip: Shares whose bytes are not looked at.
    """

    rows: Tensor
    offset: int
    ks: Sequence[int]
    value_dtype: torch.dtype
    array: Tensor
    skip: Sequence[int] = ()

    @property
    def num_shares(self) -> int:
        """Of how many shares each row has one."""
        return len(self.ks)


Sections = RankSections | ShareSections


class CorruptSectionError(ValueError):
    """Say that the bytes of a rank are no section.

    Attributes:
        rank: Whose bytes they are.
    """

    def __init__(self, function: str, sections: Sections, rank: int, problem: int) -> None:
        size = elements_of_share(
            sections.array.shape[0], sections.num_shares, rank if sections.num_shares > 1 else 0
        )
        super().__init__(
            f"{function}: the section of rank {rank} is corrupt: {PROBLEMS[problem]}. It must be "
            f"what select_top_k writes for {size} elements, k = {sections.ks[rank]} and "
            f"{sections.value_dtype}; check that all ranks use the same plan, and the network."
        )
        self.rank = rank


def check_sections(function: str, sections: Sections, dtypes: Sequence[torch.dtype]) -> None:
    """Raise unless everything about sections fits together, but for their bytes.

    Args:
        function: Named in the error.
        sections: Checked.
        dtypes: Those that the array may have.

    Raises:
        TypeError: If an argument is of the wrong kind or dtype.
        ValueError: If an argument has the wrong shape, device, layout or range.
    """
    check_vector(function, "array", sections.array, dtypes)
    num_elements, device = sections.array.shape[0], sections.array.device
    rows, offset = sections.rows, sections.offset
    if isinstance(sections, ShareSections):
        check_share_rows(
            function, rows, offset, num_elements, sections.ks, sections.value_dtype, device
        )
    else:
        check_section_shape(function, num_elements, sections.k, sections.value_dtype)
        nbytes = section_layout(num_elements, sections.k, sections.value_dtype).nbytes
        check_rows(function, "rows", rows, device)
        check_offset(function, offset, rows.shape[1], nbytes)
    check_skip(function, sections.skip, rows.shape[0])


def raise_if_corrupt(function: str, all_sections: Sequence[Sections], report: Tensor) -> None:
    """Raise if a section is corrupt; waits for the device.

    Args:
        function: Named in the error.
        all_sections: What was read.
        report: The first row of each whose section is corrupt, or -1, and what is wrong with it.
            [len(all_sections), 2], int64

    Raises:
        CorruptSectionError: For the first that is.
    """
    for sections, (row, problem) in zip(all_sections, report.tolist(), strict=True):
        if problem != 0:
            raise CorruptSectionError(function, sections, row, problem)
