"""The payloads of the two-phase exchange: one row to each owner, and the owner's sums.

All have one size and the layout of `payload.py`: in row r, and in what owner r sends, the section
of a parameter holds elements of share r (`ops/shares.py`). Sections start at the same byte for all
owners; those of a smaller share are shorter. Each row, and the sums, have a plan hash of their
own, so that what was meant for another owner, or for another phase, is refused.

Shapes: P shares, N parameters, D elements of a parameter, K selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..ops.shares import share_elements
from ..planning.plan import num_selected
from .payload_layout import PayloadLayout, make_layout


@dataclass(frozen=True)
class SharesLayout:
    """Where the sections of a group's shares are; the same on every rank.

    Attributes:
        sizes: Elements of each share of each parameter. N entries of P each
        counts: K of each share of each parameter; 0 of an empty share. N entries of P each
        value_dtype: How values travel.
        offsets: First byte of each parameter's section, in every row. N entries
        nbytes: Bytes of a row.
        rows: Of the row to each owner. P entries
        sums: Of what every owner sends.
    """

    sizes: tuple[tuple[int, ...], ...]
    counts: tuple[tuple[int, ...], ...]
    value_dtype: torch.dtype
    offsets: tuple[int, ...]
    nbytes: int
    rows: tuple[PayloadLayout, ...]
    sums: PayloadLayout

    @property
    def num_selected(self) -> tuple[int, ...]:
        """K of each parameter, all shares together. N entries."""
        return tuple(sum(counts) for counts in self.counts)


def make_shares_layout(
    num_elements: Sequence[int],
    density: float,
    num_shares: int,
    value_dtype: torch.dtype,
    *,
    description: str,
) -> SharesLayout:
    """Lay out a group's payloads.

    Args:
        num_elements: D of each parameter.
        density: K of each share is its elements times this, rounded up.
        num_shares: P.
        value_dtype: torch.bfloat16 or torch.float32.
        description: What else ranks must agree on; it enters the plan hashes.
    """
    sizes = tuple(
        tuple(share_elements(count, num_shares, share) for share in range(num_shares))
        for count in num_elements
    )
    counts = tuple(
        tuple(num_selected(size, density) if size else 0 for size in each) for each in sizes
    )

    def layout_of(what: str) -> PayloadLayout:
        # The first share is the largest
        return make_layout(
            [each[0] for each in sizes],
            [each[0] for each in counts],
            value_dtype,
            description=f"{what} of {sizes} {counts} {description}",
        )

    sums = layout_of("sums")
    return SharesLayout(
        sizes,
        counts,
        value_dtype,
        sums.offsets,
        sums.nbytes,
        tuple(layout_of(f"share {share}") for share in range(num_shares)),
        sums,
    )
