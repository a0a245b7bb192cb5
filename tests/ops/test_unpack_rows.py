"""The public door that unpacks: it trusts no byte, and writes nothing outside."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from horovod_sylvie.ops import reference
from horovod_sylvie.ops.pack_rows import pack_rows, packed_row_bytes, unpack_rows

from .row_cases import DTYPES, same_bits


def payload_of(rows: Tensor, bits: int) -> Tensor:
    out = torch.empty(len(rows), packed_row_bytes(rows.shape[1], bits), dtype=torch.uint8)
    pack_rows(rows, None, bits=bits, key=5, out=out)
    return out


def row_of(text: str) -> Tensor:
    return torch.tensor([list(bytes.fromhex(text))], dtype=torch.uint8)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", DTYPES)
def test_unpack_into_a_slice_writes_only_the_slice(bits: int, dtype: torch.dtype):
    payload = payload_of(torch.randn(6, 37), bits)
    index = torch.tensor([5, 0, 5])
    whole = torch.full((9, 37), 7.0, dtype=dtype)
    unpack_rows(payload, index, num_features=37, bits=bits, out=whole[3:6])
    expected = torch.empty(6, 37)
    unpack_rows(payload, None, num_features=37, bits=bits, out=expected)
    assert same_bits(whole[3:6], expected[index].to(dtype))
    assert (whole[:3] == 7.0).all()
    assert (whole[6:] == 7.0).all()


def test_unpack_no_rows_writes_nothing():
    payload = torch.empty(0, 6, dtype=torch.uint8)
    report = unpack_rows(payload, None, num_features=9, bits=1, out=torch.empty(0, 9))
    assert (report.num_nonfinite, report.first_nonfinite_row) == (0, -1)
    assert not report.found_any


def test_unpack_nonfinite_rows_are_nan_and_counted():
    rows = torch.randn(5, 9)
    rows[1, 3] = float("inf")
    rows[4, 0] = float("nan")
    decoded = torch.empty(3, 9)
    report = unpack_rows(
        payload_of(rows, 2), torch.tensor([4, 0, 1]), num_features=9, bits=2, out=decoded
    )
    assert (report.num_nonfinite, report.first_nonfinite_row) == (2, 4)
    assert decoded.isnan().all(dim=1).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("bits", "num_features", "row"),
    [
        (1, 7, "0000 803f 80"),  # a bit behind the last column
        (2, 3, "0000 803f 40"),
        (4, 1, "0000 803f 10"),
        (1, 8, "807f 803f 00"),  # lo = inf
        (1, 8, "c0ff 803f 00"),  # lo = NaN
        (1, 8, "0000 807f 00"),  # range = inf
        (1, 8, "0000 c17f 00"),  # range = another NaN
        (1, 8, "7f7f 7f7f 00"),  # lo + range overflows
        (1, 8, "807f 0080 00"),  # literal inf
        (1, 8, "c07f 0180 00"),  # literal NaN
        (1, 8, "803f 0080 02"),  # literal with another code bit
        (8, 2, "803f 0080 0001"),  # the same, in another byte
        (1, 8, "0000 c07f 01"),  # non-finite with a code
        (1, 8, "0100 c07f 00"),  # non-finite with a lo
    ],
)
def test_unpack_row_that_no_encoder_writes_raises_and_is_left(
    bits: int, num_features: int, row: str
):
    good = payload_of(torch.randn(2, num_features) * torch.arange(1, num_features + 1), bits)
    payload = torch.cat((good, row_of(row), row_of(row)))
    decoded = torch.full((4, num_features), 7.0)
    with pytest.raises(ValueError, match=r"unpack_rows: expected rows .* a corrupt row 2 of 4"):
        unpack_rows(payload, None, num_features=num_features, bits=bits, out=decoded)
    assert (decoded[2:] == 7.0).all()
    assert not (decoded[:2] == 7.0).all(dim=1).any()
    index = torch.tensor([0, 3, 2])
    with pytest.raises(ValueError, match="got a corrupt row 3 of 4. Check that sender and"):
        unpack_rows(payload, index, num_features=num_features, bits=bits, out=decoded[:3])
    # not chosen: no error
    unpack_rows(payload, index[:1], num_features=num_features, bits=bits, out=decoded[:1])


@given(data=st.data())
def test_unpack_any_bytes_equals_twin_and_stays_inside(data: st.DataObject):
    bits = data.draw(st.sampled_from([1, 2, 4, 8]), label="bits")
    num_features = data.draw(st.integers(1, 70), label="num_features")
    num_rows = data.draw(st.integers(1, 4), label="num_rows")
    width = packed_row_bytes(num_features, bits)
    header = st.one_of(
        st.binary(min_size=4, max_size=4), st.sampled_from([bytes.fromhex("0000c07f")])
    )
    codes = st.one_of(st.binary(min_size=width - 4, max_size=width - 4), st.just(bytes(width - 4)))
    rows = [list(data.draw(header) + data.draw(codes)) for _ in range(num_rows)]
    payload = torch.tensor(rows, dtype=torch.uint8)
    around = torch.full((num_rows + 2, num_features), 7.0)
    expected = around.clone()
    _, corrupt_row, _, _ = reference.unpack_rows(
        payload, None, num_features=num_features, bits=bits, out=expected[1:-1]
    ).tolist()
    arguments = {"num_features": num_features, "bits": bits, "out": around[1:-1]}
    if corrupt_row >= 0:
        with pytest.raises(ValueError, match=f"a corrupt row {corrupt_row} of {num_rows}"):
            unpack_rows(payload, None, **arguments)
    else:
        unpack_rows(payload, None, **arguments)
    assert same_bits(around, expected)


@given(
    num_features=st.integers(1, 70),
    bits=st.sampled_from([1, 2, 4, 8]),
    change=st.integers(-20, 20).filter(bool),
)
def test_unpack_cut_or_oversized_rows_raises(num_features: int, bits: int, change: int):
    width = packed_row_bytes(num_features, bits)
    payload = torch.zeros(3, max(0, width + change), dtype=torch.uint8)
    with pytest.raises(ValueError, match=rf"shape \(3, {width}\) for 'payload', got"):
        unpack_rows(payload, None, num_features=num_features, bits=bits, out=torch.empty(3, 70))


@pytest.mark.parametrize(("number", "position"), [(-1, 1), (6, 0), (2**62, 2)])
def test_unpack_index_outside_raises_and_writes_nothing(number: int, position: int):
    index = torch.tensor([1, 2, 3])
    index[position] = number
    decoded = torch.full((3, 9), 7.0)
    text = (
        rf"unpack_rows: expected row numbers in \[0, 6\) for 'index', got {number} at position "
        rf"{position}\. 'payload' has 6 rows\."
    )
    with pytest.raises(IndexError, match=text):
        unpack_rows(payload_of(torch.randn(6, 9), 1), index, num_features=9, bits=1, out=decoded)
    assert (decoded == 7.0).all()


PAYLOAD = torch.zeros(4, 6, dtype=torch.uint8)
OUT = torch.zeros(4, 9)


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"payload": b"bytes"}, TypeError, "a tensor for 'payload', got bytes"),
        ({"payload": PAYLOAD.long()}, TypeError, "torch.uint8 for 'payload', got torch.int64"),
        ({"payload": PAYLOAD[0]}, ValueError, "two dimensions for 'payload'"),
        ({"payload": PAYLOAD.t().contiguous().t()}, ValueError, "contiguous tensor for 'payload'"),
        ({"index": torch.zeros(4)}, TypeError, "int64 for 'index', got torch.float32"),
        ({"index": torch.zeros(4, 1, dtype=torch.int64)}, ValueError, "one dimension for 'index'"),
        ({"num_features": 0}, ValueError, "at least 1 for 'num_features', got 0"),
        ({"num_features": 17}, ValueError, "shape \\(4, 7\\) for 'payload', got \\(4, 6\\)"),
        ({"num_features": 10}, ValueError, "shape \\(4, 10\\) for 'out', got \\(4, 9\\)"),
        ({"bits": 5}, ValueError, "1, 2, 4 or 8 for 'bits', got 5"),
        ({"out": OUT.double()}, TypeError, "bfloat16 for 'out', got torch.float64"),
        ({"out": OUT[:2]}, ValueError, "shape \\(4, 9\\) for 'out', got \\(2, 9\\)"),
        ({"out": torch.zeros(9, 4).t()}, ValueError, "contiguous tensor for 'out'"),
        ({"out": OUT.to("meta")}, ValueError, "device cpu for 'out', got meta"),
    ],
)
def test_unpack_given_a_wrong_argument_names_it(
    changed: dict[str, Any], error: type[Exception], text: str
):
    arguments = {
        "payload": PAYLOAD,
        "index": None,
        "num_features": 9,
        "bits": 1,
        "out": OUT,
        **changed,
    }
    with pytest.raises(error, match="unpack_rows: expected .*" + text):
        unpack_rows(**arguments)
