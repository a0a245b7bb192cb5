"""The kernels against their twins, bit for bit, on every instruction set of this machine."""

from __future__ import annotations

import pytest
import torch

from horovod_sylvie.ops import reference, row_kernels
from horovod_sylvie.ops.native import native_or_none
from horovod_sylvie.ops.pack_rows import RowCode

from .row_cases import (
    CODES,
    DTYPES,
    KEY,
    WIDTHS,
    instruction_sets,
    pack_kernel,
    pack_twin,
    peculiar_rows,
    same_bits,
)

pytestmark = pytest.mark.skipif(
    not instruction_sets(), reason="needs the native library, which is not built"
)


@pytest.fixture(params=[1, 2, 3, 7])
def num_threads(request: pytest.FixtureRequest):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize(("bits", "code"), CODES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_features", WIDTHS)
def test_pack_kernel_on_peculiar_rows_equals_twin(
    num_features: int, dtype: torch.dtype, bits: int, code: RowCode
):
    rows = peculiar_rows(num_features, dtype)
    index = torch.randint(len(rows), (3 * len(rows),))
    expected, expected_report = pack_twin(rows, index, bits, code)
    for instruction_set in instruction_sets():
        packed, report = pack_kernel(rows, index, bits, code, instruction_set)
        assert torch.equal(packed, expected), instruction_set
        assert report == expected_report, instruction_set


@pytest.mark.parametrize(("bits", "code"), CODES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_features", WIDTHS)
def test_unpack_kernel_on_peculiar_rows_equals_twin(
    num_features: int, dtype: torch.dtype, bits: int, code: RowCode
):
    payload, _ = pack_twin(peculiar_rows(num_features), None, bits, code)
    index = torch.randint(len(payload), (2 * len(payload),))
    expected = torch.full((len(index), num_features), 7.0, dtype=dtype)
    expected_report = reference.unpack_rows(
        payload, index, num_features=num_features, bits=bits, out=expected
    )
    for instruction_set in instruction_sets():
        decoded = torch.full_like(expected, 9.0)
        report = row_kernels.unpack_rows(
            native_or_none(),
            payload,
            index,
            num_features=num_features,
            bits=bits,
            out=decoded,
            instruction_set=instruction_set,
        )
        assert same_bits(decoded, expected), instruction_set
        assert torch.equal(report, expected_report), instruction_set


@pytest.mark.parametrize("instruction_set", instruction_sets())
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_unpack_kernel_on_random_bytes_equals_twin(bits: int, instruction_set: str):
    num_features = 37
    payload = torch.randint(256, (4000, 4 + (num_features * bits + 7) // 8), dtype=torch.uint8)
    payload[::2, 4:] = 0  # else hardly a literal is valid
    payload[::5, 0:4] = torch.tensor([0, 0, 0xC0, 0x7F], dtype=torch.uint8)
    expected = torch.full((len(payload), num_features), 7.0)
    decoded = expected.clone()
    expected_report = reference.unpack_rows(
        payload, None, num_features=num_features, bits=bits, out=expected
    )
    report = row_kernels.unpack_rows(
        native_or_none(),
        payload,
        None,
        num_features=num_features,
        bits=bits,
        out=decoded,
        instruction_set=instruction_set,
    )
    assert same_bits(decoded, expected)
    assert torch.equal(report, expected_report)


@pytest.mark.parametrize(("bits", "code"), CODES)
def test_kernels_on_any_number_of_threads_give_the_same_bits(
    num_threads: int, bits: int, code: RowCode
):
    rows = torch.randn(2003, 602)
    rows[1000, 5] = float("nan")
    rows[1990, 5] = float("inf")
    index = torch.arange(2003).flip(0)
    expected, expected_report = pack_twin(rows, index, bits, code)
    packed, report = pack_kernel(rows, index, bits, code, instruction_sets()[-1])
    assert torch.equal(packed, expected)
    assert report == expected_report == [-1, -1, 2002 - 1990, -1 - 2]

    expected[1500, 2:4] = torch.tensor([0xC1, 0x7F])  # a range of NaN: corrupt
    outcomes = []
    for threads in (1, num_threads):
        torch.set_num_threads(threads)
        decoded = torch.zeros(2003, 602)
        report = row_kernels.unpack_rows(
            native_or_none(), expected, None, num_features=602, bits=bits, out=decoded
        )
        outcomes.append((decoded, report.tolist()))
    assert same_bits(outcomes[0][0], outcomes[1][0])
    assert outcomes[0][1] == outcomes[1][1] == [-1, 1500, 2002 - 1990, -1 - 2]


def test_pack_kernel_where_denormals_are_flushed_gives_the_same_bytes():
    rows = peculiar_rows(33)
    expected, _ = pack_twin(rows, None, 1, "minmax")
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush denormals")
    try:
        packed, _ = pack_kernel(rows, None, 1, "minmax", instruction_sets()[-1])
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(packed, expected)


@pytest.mark.parametrize(
    ("argument", "value", "text"),
    [
        ("bits", 3, "expected 1, 2, 4 or 8 for 'bits', got 3"),
        ("code", "median", "for 'code', got 'median' with 1 bits"),
        ("dtype", "float64", "for 'dtype', got 'float64'"),
        ("num_features", 0, "for 'rows', got \\[2, 0\\]"),
        ("num_rows", -1, "for 'rows', got \\[-1, 8\\]"),
        ("num_rows", 1 << 60, "for 'rows'"),
        ("num_packed", -1, "for 'index', got \\[-1, 8\\]"),
        ("num_packed", 1, "expected 5 for 'out_bytes', got 10"),
        ("out_bytes", 9, "expected 10 for 'out_bytes', got 9"),
        ("row_stride", -8, "for 'row_stride', got -8"),
        ("instruction_set", "mmx", "for 'instruction_set', got 'mmx'"),
    ],
)
def test_pack_binding_given_wrong_size_raises(argument: str, value: object, text: str):
    arguments = {
        "rows": 0,
        "dtype": "float32",
        "num_rows": 2,
        "num_features": 8,
        "row_stride": 8,
        "index": 0,
        "num_packed": 2,
        "bits": 1,
        "code": "minmax",
        "key": KEY,
        "out": 0,
        "out_bytes": 10,
        "report": 0,
        "num_threads": 1,
    }
    with pytest.raises(ValueError, match=text):
        native_or_none().pack_rows(**{**arguments, argument: value})


@pytest.mark.parametrize(
    ("argument", "value", "text"),
    [
        ("bits", 16, "expected 1, 2, 4 or 8 for 'bits', got 16"),
        ("dtype", "int8", "for 'dtype', got 'int8'"),
        ("num_features", -4, "for 'payload', got \\[2, -4\\]"),
        ("payload_bytes", 11, "expected 10 for 'payload_bytes', got 11"),
        ("num_unpacked", 3, "expected 2 for 'num_unpacked', got 3"),
    ],
)
def test_unpack_binding_given_wrong_size_raises(argument: str, value: object, text: str):
    arguments = {
        "payload": 0,
        "payload_bytes": 10,
        "num_packed": 2,
        "num_features": 8,
        "bits": 1,
        "index": 0,
        "num_unpacked": 2,
        "out": 0,
        "dtype": "float32",
        "report": 0,
        "num_threads": 1,
    }
    with pytest.raises(ValueError, match=text):
        native_or_none().unpack_rows(**{**arguments, argument: value})
