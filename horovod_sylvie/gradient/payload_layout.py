"""Where everything is in the payload of a group; `payload.py` has the table of bytes.

Shapes: D elements of a parameter, K selected, W elements that travel whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from ..ops.top_k import section_bytes

HEADER_BYTES: Final = 64
VERSION: Final = 1
_ALIGNMENT: Final = 512


@dataclass(frozen=True)
class PayloadLayout:
    """Where the sections of a group's payload are; the same on every rank.

    Attributes:
        num_elements: D of each parameter.
        num_selected: K of each parameter.
        offsets: First byte of each section.
        whole_begin: First byte of what travels whole.
        num_whole: W.
        nbytes: Bytes of the payload.
        plan_hash: 64 bits of everything that ranks must agree on.
    """

    num_elements: tuple[int, ...]
    num_selected: tuple[int, ...]
    value_dtype: torch.dtype
    offsets: tuple[int, ...]
    whole_begin: int
    num_whole: int
    nbytes: int
    plan_hash: int


def make_layout(
    num_elements: Sequence[int],
    num_selected: Sequence[int],
    value_dtype: torch.dtype,
    *,
    num_whole: int = 0,
    description: str,
) -> PayloadLayout:
    """Lay out a group's payload.

    Args:
        num_elements: D of each parameter.
        num_selected: K of each parameter.
        value_dtype: torch.bfloat16 or torch.float32.
        num_whole: Number of elements that travel whole, W.
        description: What else ranks must agree on; it enters the plan hash.
    """
    offsets = []
    end = HEADER_BYTES
    for elements, selected in zip(num_elements, num_selected, strict=True):
        offsets.append(end)
        end += section_bytes(elements, selected, value_dtype)
    plan = (
        f"{VERSION} {list(num_elements)} {list(num_selected)} {value_dtype} {num_whole} "
        f"{description}"
    )
    digest = hashlib.sha256(plan.encode()).digest()
    return PayloadLayout(
        num_elements=tuple(num_elements),
        num_selected=tuple(num_selected),
        value_dtype=value_dtype,
        offsets=tuple(offsets),
        whole_begin=end,
        num_whole=num_whole,
        nbytes=-(-(end + 4 * num_whole) // _ALIGNMENT) * _ALIGNMENT,
        plan_hash=int.from_bytes(digest[:8], "little"),
    )
