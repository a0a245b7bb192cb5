"""What the kernels are timed against does the same."""

from __future__ import annotations

import pytest

pytest.importorskip("tqdm", reason="needs the extra [examples]")

import torch
import torch_ways

from horovod_sylvie.ops.pack_rows import pack_rows, packed_row_bytes


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("num_features", [1, 7, 64, 130])
def test_packed_rows_decode_to_the_level_below_or_above(bits: int, num_features: int) -> None:
    rows, index = torch.randn(50, num_features), torch.randint(50, (30,))
    low, step, codes = torch_ways.pack(rows, index, bits)
    assert codes.shape == (30, packed_row_bytes(num_features, bits) - 4)
    found = torch_ways.unpack(low, step, codes, bits, num_features)
    if num_features > 1:  # one element is its row's minimum, and all steps are zero
        assert ((found - rows[index]).abs() <= 1.0001 * step).all()
        assert (found != rows[index]).any()


def test_packed_rows_are_right_in_the_mean() -> None:
    row = torch.randn(1, 16)
    index = torch.zeros(20_000, dtype=torch.int64)
    found = torch_ways.unpack(*torch_ways.pack(row, index, 1), 1, 16)
    torch.testing.assert_close(found.mean(dim=0), row[0], atol=0.06, rtol=0)


def test_two_means_and_code_bytes_are_the_kernels() -> None:
    rows, index = torch.randn(40, 77), torch.randperm(40)
    low, step, codes = torch_ways.pack_two_means(rows, index)
    payload = torch.zeros(40, packed_row_bytes(77, 1), dtype=torch.uint8)
    pack_rows(rows, index, bits=1, code="centroid", key=0, out=payload)
    assert torch.equal(codes, payload[:, 4:])
    headers = payload[:, :4].contiguous().view(torch.bfloat16).float()
    torch.testing.assert_close(low, headers[:, :1], rtol=2**-8, atol=0)
    torch.testing.assert_close(step, headers[:, 1:], rtol=2**-6, atol=0)


def test_selecting_keeps_the_mass_and_sums_are_the_ranks() -> None:
    grad, residual = torch.randn(1000), torch.randn(1000)
    total = grad + residual
    index, values = torch_ways.select(grad, residual, 30)
    assert torch.equal(total.abs().topk(30).values.sort().values, values.abs().sort().values)
    out = torch.full((1000,), 7.0)
    torch_ways.add_selected(out, [(index, values)] * 2, 0.5)
    assert torch.equal(residual + out, total)
