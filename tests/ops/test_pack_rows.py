"""The public door that packs: what it accepts, what it refuses, and that bytes depend on no more.

The arithmetic is tested in test_reference.py, the kernels in test_row_kernels.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from horovod_sylvie.ops.pack_rows import pack_rows, packed_row_bytes

from .row_cases import CODES, peculiar_rows


def pack(rows: Tensor, index: Tensor | None = None, *, bits: int = 1, key: int = 5) -> Tensor:
    num_packed = len(rows) if index is None else len(index)
    out = torch.empty(num_packed, packed_row_bytes(rows.shape[1], bits), dtype=torch.uint8)
    pack_rows(rows, index, bits=bits, key=key, out=out)
    return out


@pytest.mark.parametrize(
    ("num_features", "bits", "expected"),
    [(1, 1, 5), (8, 1, 5), (9, 1, 6), (3, 2, 5), (5, 4, 7), (1025, 8, 1029), (256, 1, 36)],
)
def test_packed_row_bytes_is_header_and_whole_bytes(num_features: int, bits: int, expected: int):
    assert packed_row_bytes(num_features, bits) == expected


@pytest.mark.parametrize(("num_features", "bits", "name"), [(0, 1, "num_features"), (8, 3, "bits")])
def test_packed_row_bytes_out_of_range_raises(num_features: int, bits: int, name: str):
    with pytest.raises(ValueError, match=rf"packed_row_bytes: expected .* for '{name}', got"):
        packed_row_bytes(num_features, bits)


@pytest.mark.parametrize(("bits", "code"), CODES)
@pytest.mark.parametrize("use_index", [False, True])
def test_pack_no_rows_writes_nothing(bits: int, code: Any, use_index: bool):
    out = torch.empty(0, packed_row_bytes(9, bits), dtype=torch.uint8)
    index = torch.empty(0, dtype=torch.int64) if use_index else None
    rows = torch.empty(3 if use_index else 0, 9)
    report = pack_rows(rows, index, bits=bits, code=code, key=0, out=out)
    assert (report.num_nonfinite, report.first_nonfinite_row) == (0, -1)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_pack_of_any_strides_equals_pack_of_contiguous(bits: int):
    table = torch.randn(40, 70)
    index = torch.tensor([5, 0, 5, 19])
    views = [
        table.t(),  # features far apart
        table[:, 3:36],  # rows with a gap
        table[::2],
        table[::2, ::2],
        table[0].expand(20, 70),  # one row, stride 0
        table[:, :1].expand(40, 33),  # one column, stride 0
        torch.randn(40, 70, 2)[:, :, 0],
        table[:, 5:6],
    ]
    for view in views:
        assert torch.equal(pack(view, index, bits=bits), pack(view.contiguous(), index, bits=bits))
    strided_index = torch.stack((index, index), dim=1)[:, 0]
    assert torch.equal(pack(table, strided_index, bits=bits), pack(table, index, bits=bits))


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_pack_of_half_precision_equals_pack_of_its_float32(bits: int, dtype: torch.dtype):
    rows = peculiar_rows(33, dtype)
    assert torch.equal(pack(rows, bits=bits), pack(rows.float(), bits=bits))


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_pack_row_twice_gives_the_same_bytes(bits: int):
    packed = pack(torch.randn(9, 65), torch.tensor([7, 3, 7, 7]), bits=bits)
    assert torch.equal(packed[0], packed[2])
    assert torch.equal(packed[0], packed[3])
    assert not torch.equal(packed[0], packed[1])


def test_pack_chosen_rows_equals_choosing_packed_rows():
    rows = torch.randn(50, 65)
    index = torch.randint(50, (30,))
    assert torch.equal(pack(rows, index), pack(rows)[index])


def test_pack_equal_rows_with_other_numbers_gives_other_bytes():
    packed = pack(torch.randn(65).expand(200, 65))
    assert len(packed.unique(dim=0)) == 200


def test_pack_with_other_keys_gives_other_bytes():
    rows = torch.randn(1, 128)
    packed = [pack(rows, key=key) for key in [*range(100), 2**63, 2**64 - 1]]
    assert len(torch.cat(packed).unique(dim=0)) == len(packed)


def test_pack_centroid_does_not_depend_on_the_key():
    rows = torch.randn(20, 65)
    out = [torch.empty(20, packed_row_bytes(65, 1), dtype=torch.uint8) for _ in range(2)]
    for key, each in enumerate(out):
        pack_rows(rows, None, bits=1, code="centroid", key=key, out=each)
    assert torch.equal(*out)


@pytest.mark.parametrize(("bits", "code"), CODES)
def test_pack_nonfinite_rows_are_counted_and_the_first_is_named(bits: int, code: Any):
    rows = torch.randn(10, 33)
    rows[4, 32] = float("nan")
    rows[7, 0] = float("-inf")
    out = torch.empty(6, packed_row_bytes(33, bits), dtype=torch.uint8)
    index = torch.tensor([0, 7, 4, 7, 1, 2])
    report = pack_rows(rows, index, bits=bits, code=code, key=0, out=out)
    assert (report.num_nonfinite, report.first_nonfinite_row) == (3, 7)
    assert report.found_any


def test_pack_rows_that_require_gradients_leaves_them_alone():
    rows = torch.randn(4, 9, requires_grad=True)
    assert torch.equal(pack(rows), pack(rows.detach()))


@pytest.mark.parametrize(("number", "position"), [(-1, 2), (10, 0), (2**62, 3), (-(2**63), 1)])
def test_pack_index_outside_raises_and_writes_nothing(number: int, position: int):
    index = torch.tensor([1, 2, 3, 4])
    index[position] = number
    out = torch.full((4, 6), 0xA5, dtype=torch.uint8)
    text = (
        rf"pack_rows: expected row numbers in \[0, 10\) for 'index', got {number} at position "
        rf"{position}\. 'rows' has 10 rows\."
    )
    with pytest.raises(IndexError, match=text):
        pack_rows(torch.randn(10, 9), index, bits=1, key=0, out=out)
    assert (out == 0xA5).all()


ROWS = torch.zeros(4, 9)
OUT = torch.zeros(4, 6, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"rows": [[1.0]]}, TypeError, "a tensor for 'rows', got list"),
        ({"rows": ROWS.double()}, TypeError, "bfloat16 for 'rows', got torch.float64.*float()"),
        ({"rows": ROWS.to_sparse()}, TypeError, "a dense tensor for 'rows', got layout"),
        ({"rows": ROWS[0]}, ValueError, "two dimensions for 'rows', got shape \\(9,\\)"),
        ({"rows": ROWS[:, :0]}, ValueError, "at least one feature for 'rows'"),
        ({"index": [0]}, TypeError, "a tensor for 'index', got list"),
        ({"index": torch.zeros(4, dtype=torch.int32)}, TypeError, "int64 for 'index', got torch."),
        ({"index": torch.zeros(2, 2, dtype=torch.int64)}, ValueError, "one dimension for 'index'"),
        ({"index": torch.zeros(3, dtype=torch.int64)}, ValueError, "\\(3, 6\\) for 'out'"),
        ({"index": torch.zeros(4, dtype=torch.int64, device="meta")}, ValueError, "device cpu for"),
        ({"bits": 3}, ValueError, "1, 2, 4 or 8 for 'bits', got 3"),
        ({"bits": True}, ValueError, "1, 2, 4 or 8 for 'bits', got True"),
        ({"bits": 2}, ValueError, "\\(4, 7\\) for 'out', got \\(4, 6\\)"),
        ({"code": "median"}, ValueError, "'minmax' or 'centroid' for 'code', got 'median'"),
        ({"code": "centroid", "bits": 2}, ValueError, "1 for 'bits' with code='centroid', got 2"),
        ({"key": -1}, ValueError, "\\[0, 2\\*\\*64\\) for 'key', got -1"),
        ({"key": 2**64}, ValueError, "for 'key', got 18446744073709551616"),
        ({"key": 1.0}, TypeError, "an int for 'key', got float"),
        ({"out": OUT.to(torch.int8)}, TypeError, "torch.uint8 for 'out', got torch.int8"),
        ({"out": OUT[:3]}, ValueError, "shape \\(4, 6\\) for 'out', got \\(3, 6\\)"),
        ({"out": torch.zeros(6, 4, dtype=torch.uint8).t()}, ValueError, "contiguous.*'out'"),
        ({"out": OUT.to("meta")}, ValueError, "device cpu for 'out', got meta"),
    ],
)
def test_pack_given_a_wrong_argument_names_it(
    changed: dict[str, Any], error: type[Exception], text: str
):
    arguments = {"rows": ROWS, "index": None, "bits": 1, "key": 0, "out": OUT, **changed}
    with pytest.raises(error, match="pack_rows: expected .*" + text):
        pack_rows(**arguments)
