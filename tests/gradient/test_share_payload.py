"""The payloads of the two-phase exchange: one size, one hash for each owner and phase."""

from __future__ import annotations

import pytest
import torch

from horovod_sylvie.gradient.payload import (
    Header,
    PayloadError,
    open_payload,
    receive_payloads,
    seal,
)
from horovod_sylvie.gradient.share_payload import SharesLayout, make_shares_layout
from horovod_sylvie.ops.top_k import section_bytes


def layout_of(num_shares: int = 3, density: float = 0.1, description: str = "") -> SharesLayout:
    return make_shares_layout(
        [20_000, 100], density, num_shares, torch.bfloat16, description=description
    )


def test_counts_are_of_each_share_and_sections_fit_the_largest() -> None:
    layout = layout_of()
    assert layout.sizes == ((8192, 7712, 4096), (100, 0, 0))
    assert layout.counts == ((820, 772, 410), (10, 0, 0))
    assert layout.num_selected == (2002, 10)
    sections = [section_bytes(8192, 820, torch.bfloat16), section_bytes(100, 10, torch.bfloat16)]
    assert layout.offsets == (64, 64 + sections[0])
    assert layout.nbytes == -(-(64 + sum(sections)) // 512) * 512
    assert {each.nbytes for each in (*layout.rows, layout.sums)} == {layout.nbytes}


def test_plan_hashes_differ_in_all_that_ranks_agree_on() -> None:
    layouts = [layout_of(), layout_of(4), layout_of(density=0.1001), layout_of(description="b")]
    hashes = [each.plan_hash for layout in layouts for each in (*layout.rows, layout.sums)]
    assert len(set(hashes)) == len(hashes) == 4 + 5 + 4 + 4


def test_row_to_one_owner_is_refused_by_another_and_as_a_sum() -> None:
    layout = layout_of()
    row = torch.zeros(layout.nbytes, dtype=torch.uint8)
    seal(row, layout.rows[1], Header(num_nonfinite=2), step=5, rank=0)
    received = receive_payloads(row[None])[0]
    opened = open_payload(received, layout.rows[1], step=5, rank=0, group="g")
    assert opened == Header(num_nonfinite=2)
    for other in (layout.rows[0], layout.rows[2], layout.sums):
        with pytest.raises(PayloadError, match="plan hash"):
            open_payload(received, other, step=5, rank=0, group="g")
