"""The layout of a section: the selected elements of one parameter, as bytes.

D elements of which exactly K are selected, in NB = ceil(D / 65536) blocks, little-endian:

| offset         | bytes  | meaning                                                             |
|----------------|--------|---------------------------------------------------------------------|
| 0              | 4 * NB | uint32: how many elements of each block of 65536 are selected       |
| 4 * NB         | 2 * K  | uint16: number of an element inside its block                       |
| 4 * NB + 2 * K | V * K  | values in the same order; the offset is rounded up to 4             |

V = 4 (float32) or 2 (bfloat16) bytes a value. Numbers are strictly ascending inside a block, and
blocks are in order. nbytes = the multiple of 8 that follows. What lies between is zero. Values are
finite.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch

BLOCK_ELEMENTS: Final = 65536


class SectionLayout(NamedTuple):
    """Where the parts of a section are, in bytes.

    Attributes:
        num_blocks: Number of blocks NB.
        index_begin: Where the indices start, and the counts end.
        index_end: Where the indices end.
        values_begin: Where the values start.
        values_end: Where the values end.
        nbytes: Length of the section.
    """

    num_blocks: int
    index_begin: int
    index_end: int
    values_begin: int
    values_end: int
    nbytes: int


def section_layout(num_elements: int, k: int, value_dtype: torch.dtype) -> SectionLayout:
    """Lay a section out, for arguments that are checked."""
    num_blocks = -(-num_elements // BLOCK_ELEMENTS)
    index_begin = 4 * num_blocks
    index_end = index_begin + 2 * k
    values_begin = index_end + index_end % 4
    values_end = values_begin + value_dtype.itemsize * k
    nbytes = -(-values_end // 8) * 8
    return SectionLayout(num_blocks, index_begin, index_end, values_begin, values_end, nbytes)
