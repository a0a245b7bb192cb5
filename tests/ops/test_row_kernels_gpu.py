"""The public doors on a GPU against the CPU: the same bytes, and no wait before the report is read.

They have never run: no GPU was to be had. Where there is one, they must pass.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from horovod_sylvie.ops import row_kernels
from horovod_sylvie.ops.pack_rows import RowCode, pack_rows, packed_row_bytes, unpack_rows
from horovod_sylvie.ops.row_sums import RowSums, add_packed_rows, add_rows

from .row_cases import CODES, DTYPES, KEY, peculiar_rows, same_bits

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

DEVICE = torch.device("cuda", 0)
WIDTHS = (1, 33, 64, 128, 602, 1025)


@pytest.fixture(autouse=True)
def kernels_run_here() -> None:
    if row_kernels.native_for(DEVICE) is None:
        pytest.skip("needs a native library that was built with CUDA for this GPU")


def packed(rows: Tensor, index: Tensor | None, bits: int, code: RowCode = "minmax") -> Tensor:
    num_packed = len(rows) if index is None else len(index)
    width = packed_row_bytes(rows.shape[1], bits)
    out = torch.full((num_packed, width), 0xA5, dtype=torch.uint8, device=rows.device)
    pack_rows(rows, index, bits=bits, code=code, key=KEY, out=out)
    return out


@pytest.mark.parametrize(("bits", "code"), CODES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_features", WIDTHS)
def test_gpu_packs_and_unpacks_as_the_cpu_does(
    num_features: int, dtype: torch.dtype, bits: int, code: RowCode
):
    rows = peculiar_rows(num_features, dtype)
    index = torch.randint(len(rows), (999,))
    expected = packed(rows, index, bits, code)
    found = packed(rows.to(DEVICE), index.to(DEVICE), bits, code)
    assert torch.equal(found.cpu(), expected)
    decoded = torch.empty(999, num_features, dtype=dtype)
    on_gpu = decoded.to(DEVICE)
    report = unpack_rows(expected, None, num_features=num_features, bits=bits, out=decoded)
    gpu_report = unpack_rows(found, None, num_features=num_features, bits=bits, out=on_gpu)
    assert same_bits(on_gpu.cpu(), decoded)
    assert gpu_report.num_nonfinite == report.num_nonfinite > 0
    assert gpu_report.first_nonfinite_row == report.first_nonfinite_row


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_gpu_packs_many_rows_as_the_cpu_does(bits: int):
    rows = torch.randn(100_000, 256)
    index = torch.randperm(len(rows))
    expected = packed(rows, index, bits)
    assert torch.equal(packed(rows.to(DEVICE), index.to(DEVICE), bits).cpu(), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_adds_as_the_cpu_does(dtype: torch.dtype):
    rows = torch.randn(5000, 130).to(dtype)
    sums = torch.randint(700, (5000,))
    out = torch.randn(701, 130).to(dtype)
    on_gpu = out.to(DEVICE)
    add_rows(rows, RowSums.of(sums, 701), out=out)
    add_rows(rows.to(DEVICE), RowSums.of(sums.to(DEVICE), 701), out=on_gpu)
    assert same_bits(on_gpu.cpu(), out)
    payload = packed(rows, None, 1)
    add_packed_rows(payload, None, RowSums.of(sums, 701), bits=1, out=out)
    add_packed_rows(payload.to(DEVICE), None, RowSums.of(sums.to(DEVICE), 701), bits=1, out=on_gpu)
    assert same_bits(on_gpu.cpu(), out)


def test_gpu_reports_wrong_rows_when_the_report_is_read():
    rows = torch.randn(10, 9, device=DEVICE)
    out = torch.full((3, 6), 0xA5, dtype=torch.uint8, device=DEVICE)
    index = torch.tensor([1, 10, 2], device=DEVICE)
    report = pack_rows(rows, index, bits=1, key=0, out=out)
    assert report.found_any.item()
    with pytest.raises(IndexError, match=r"\[0, 10\) for 'index', got 10 at position 1"):
        report.check()
    assert (out == 0xA5).all().item()
    decoded = torch.full((3, 9), 7.0, device=DEVICE)
    report = unpack_rows(out, None, num_features=9, bits=1, out=decoded)
    with pytest.raises(ValueError, match="a corrupt row 0 of 3"):
        report.check()
    assert (decoded == 7.0).all().item()


def test_gpu_kernels_run_in_the_current_stream_and_do_not_wait():
    rows = torch.randn(1000, 64)
    expected = packed(rows, None, 1)
    stream = torch.cuda.Stream(DEVICE)
    with torch.cuda.stream(stream):
        on_gpu = torch.empty(rows.shape, device=DEVICE)
        index = torch.arange(len(rows), device=DEVICE)
        out = torch.empty(expected.shape, dtype=torch.uint8, device=DEVICE)
        stream.synchronize()
        torch.cuda._sleep(200_000_000)  # about 0.1 s: what follows is queued behind it
        on_gpu.copy_(rows.pin_memory(), non_blocking=True)
        pack_rows(on_gpu, index, bits=1, key=KEY, out=out)
        assert not stream.query()
        stream.synchronize()
    assert torch.equal(out.cpu(), expected)
