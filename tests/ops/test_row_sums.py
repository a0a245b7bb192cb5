"""Rows added to given rows: the same bits as adding row after row, on every device."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from horovod_sylvie.ops import reference, row_kernels
from horovod_sylvie.ops.native import native_or_none
from horovod_sylvie.ops.pack_rows import pack_rows, packed_row_bytes, unpack_rows
from horovod_sylvie.ops.row_sums import RowSums, add_packed_rows, add_rows
from tests.cuda_shim.build import STREAM

from .row_cases import DTYPES, instruction_sets, peculiar_rows, same_bits

# The first test that runs CUDA kernels compiles
pytestmark = pytest.mark.timeout(300)

BITS = (1, 2, 4, 8)
WIDTHS = (1, 7, 8, 33, 64, 130, 1025)


def packed(rows: Tensor, bits: int) -> Tensor:
    out = torch.empty(len(rows), packed_row_bytes(rows.shape[1], bits), dtype=torch.uint8)
    pack_rows(rows, None, bits=bits, key=3, out=out)
    return out


def one_by_one(rows: Tensor, index: Tensor, out: Tensor) -> Tensor:
    """Add row after row to a copy, half precision in float32."""
    wide = torch.promote_types(out.dtype, torch.float32)
    total = out.to(wide, copy=True)
    for row, target in zip(rows.to(wide), index.tolist(), strict=True):
        total[target] += row
    return total.to(out.dtype)


def kernels(cuda_on_host: ModuleType | None = None) -> list[tuple[Any, dict[str, Any]]]:
    """Return each library with its options, for `row_kernels.add_rows`."""
    found: list[tuple[Any, dict[str, Any]]] = [
        (native_or_none(), {"instruction_set": each}) for each in instruction_sets()
    ]
    if cuda_on_host is not None:
        found.append((cuda_on_host, {"stream": STREAM}))
    return found


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
def test_add_rows_equals_adding_row_after_row(dtype: torch.dtype):
    rows = (torch.randn(60, 33) * 10.0 ** torch.randint(-6, 4, (60, 1))).to(dtype)
    index = torch.randint(9, (60,))
    out = torch.randn(10, 33).to(dtype)
    expected = one_by_one(rows, index, out)
    if dtype.itemsize > 2:  # of others, versions of torch may differ
        assert torch.equal(expected, out.index_add(0, index, rows))
    add_rows(rows, RowSums.of(index, 10), out=out)
    assert torch.equal(out, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", BITS)
def test_add_packed_rows_equals_decoding_and_adding(bits: int, dtype: torch.dtype):
    payload = packed(torch.randn(30, 33), bits)
    chosen = torch.randint(30, (60,))
    index = torch.randint(9, (60,))
    out = torch.randn(10, 33).to(dtype)
    decoded = torch.empty(60, 33, dtype=dtype)
    unpack_rows(payload, chosen, num_features=33, bits=bits, out=decoded)
    expected = one_by_one(decoded, index, out)
    report = add_packed_rows(payload, chosen, RowSums.of(index, 10), bits=bits, out=out)
    assert torch.equal(out, expected)
    assert report.num_nonfinite == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [0, *BITS])
@pytest.mark.parametrize("num_features", WIDTHS)
def test_kernels_of_every_device_equal_the_twin(
    cuda_on_host: ModuleType, num_features: int, bits: int, dtype: torch.dtype
):
    finite = peculiar_rows(num_features, dtype)[:16]
    rows = packed(finite, bits) if bits else finite
    if bits:
        rows[3, 2:4] = torch.tensor([0xC1, 0x7F])  # a range of NaN: corrupt
    sums = RowSums.of(torch.randint(5, (40,)), 6)
    chosen = torch.randint(16, (40,))
    if bits == 0:
        rows, chosen = rows[chosen], None
    out = torch.randn(6, num_features).to(dtype)
    expected = out.clone()
    arguments = (rows, chosen, sums.order, sums.targets, sums.starts)
    expected_report = reference.add_rows(*arguments, bits=bits, out=expected)
    for library, options in kernels(cuda_on_host):
        memory = torch.full((8, num_features), 9.0, dtype=dtype)
        memory[1:-1] = out
        report = row_kernels.add_rows(library, *arguments, bits=bits, out=memory[1:-1], **options)
        # Of inf - inf, any NaN
        assert same_bits(memory[1:-1].nan_to_num(7.0), expected.nan_to_num(7.0)), options
        assert torch.equal(report, expected_report), options
        assert (memory[[0, -1]] == 9.0).all()


@pytest.mark.parametrize("seed", ["0", "4"])
def test_kernels_report_what_they_cannot_add_and_touch_nothing_else(
    cuda_on_host: ModuleType, monkeypatch: pytest.MonkeyPatch, seed: str
):
    monkeypatch.setenv("HVS_CUDA_SHIM_SEED", seed)
    good = (
        torch.arange(4).flip(0),
        torch.tensor([3, 1, 0, 2]),
        torch.tensor([0, 2]),
        torch.tensor([0, 1, 4]),
    )
    for array, position in ((0, 3), (1, 2), (2, 1), (3, 1)):
        for number in (-1, 9, 2**62, -(2**63)):
            arrays = [each.clone() for each in good]
            arrays[array][position] = number
            for library, options in kernels(cuda_on_host):
                out = torch.zeros(3, 9)
                report = row_kernels.add_rows(
                    library, torch.ones(4, 9), *arrays, bits=0, out=out, **options
                )
                # a start is wrong for two targets
                assert report.tolist() == [0 if array == 3 else position, -1, -1, -1]
                assert not out.any()


def test_nonfinite_rows_are_added_as_nan_and_counted():
    rows = torch.randn(4, 9)
    rows[2, 5] = float("inf")
    out = torch.zeros(3, 9)
    report = add_packed_rows(
        packed(rows, 1), None, RowSums.of(torch.tensor([0, 1, 1, 0]), 3), bits=1, out=out
    )
    assert (report.num_nonfinite, report.first_nonfinite_row) == (1, 2)
    assert out.isnan().all(dim=1).tolist() == [False, True, False]


def test_corrupt_or_missing_rows_raise():
    payload = packed(torch.randn(4, 9), 1)
    sums = RowSums.of(torch.tensor([0, 1]), 3)
    out = torch.zeros(3, 9)
    with pytest.raises(IndexError, match=r"add_packed_rows: expected row numbers in \[0, 4\) .* 4"):
        add_packed_rows(payload, torch.tensor([0, 4]), sums, bits=1, out=out)
    assert not out.any()
    payload[3, 5] = 0x80
    with pytest.raises(ValueError, match="add_packed_rows: expected .* a corrupt row 3 of 4"):
        add_packed_rows(payload, torch.tensor([3, 0]), sums, bits=1, out=out)


def test_no_rows_add_nothing():
    sums = RowSums.of(torch.empty(0, dtype=torch.int64), 3)
    out = torch.ones(3, 9)
    add_rows(torch.empty(0, 9), sums, out=out)
    empty = torch.empty(0, 6, dtype=torch.uint8)
    assert add_packed_rows(empty, None, sums, bits=1, out=out).num_nonfinite == 0
    assert (out == 1).all()


SUMS = RowSums.of(torch.tensor([0, 2]), 3)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: RowSums.of(torch.tensor([0, 3]), 3), IndexError, r"\[0, 3\) .* 3 at position 1"),
        (
            lambda: add_rows(torch.ones(2, 9), SUMS, out=torch.ones(4, 9)),
            ValueError,
            r"shape \(3, 9\) for 'out', got \(4, 9\)",
        ),
        (
            lambda: add_rows(torch.ones(3, 9), SUMS, out=torch.ones(3, 9)),
            ValueError,
            r"shape \(2, 9\) for 'rows', got \(3, 9\)",
        ),
        (
            lambda: add_rows(torch.ones(2, 9).double(), SUMS, out=torch.ones(3, 9)),
            TypeError,
            "torch.float32 for 'rows', got torch.float64",
        ),
        (
            lambda: add_packed_rows(packed(torch.ones(3, 9), 1), None, SUMS, bits=1, out=OUT),
            ValueError,
            "2 rows for 'index', as 'sums' adds, got 3",
        ),
        (
            lambda: add_packed_rows(packed(torch.ones(2, 9), 2), None, SUMS, bits=1, out=OUT),
            ValueError,
            r"shape \(2, 6\) for 'payload', got \(2, 7\)",
        ),
        (
            lambda: add_packed_rows(OUT, None, SUMS, bits=3, out=OUT),
            ValueError,
            "1, 2, 4 or 8 for 'bits', got 3",
        ),
    ],
)
def test_sums_given_a_wrong_argument_name_it(call: Any, error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        call()


OUT = torch.zeros(3, 9)
