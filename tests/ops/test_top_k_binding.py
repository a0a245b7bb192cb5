"""What the bindings of the top-k kernels refuse."""

from __future__ import annotations

import pytest

from horovod_sylvie.ops.native import native_or_none

from .row_cases import instruction_sets

pytestmark = pytest.mark.skipif(
    not instruction_sets(), reason="needs the native library, which is not built"
)

SELECTION = {
    "grad": 0,
    "dtype": "float32",
    "residual": 0,
    "num_elements": 100,
    "ks": [11, 0],
    "scale": 1.0,
    "value_dtype": "float32",
    "hints": [0, 0],
    "accumulated": 0,
    "rows": 0,
    "rows_bytes": 2 * 80,
    "offset": 8,
}
SECTIONS = {
    "rows": 0,
    "rows_bytes": 2 * 80,
    "offset": 8,
    "num_elements": 100,
    "ks": [11, 11],
    "num_shares": 1,
    "value_dtype": "float32",
    "skip": [],
    "array": 0,
    "dtype": "float32",
}


@pytest.mark.parametrize(
    ("argument", "value", "text"),
    [
        ("num_elements", 0, "expected a number in \\[1, 4294967296\\] for 'num_elements', got 0"),
        ("num_elements", (1 << 32) + 1, "for 'num_elements', got 4294967297"),
        ("ks", [], "for 'len\\(ks\\)', got 0"),
        ("ks", [0, 0], "expected a number in \\[1, 100\\] for 'ks', got 0"),
        ("ks", [101, 0], "for 'ks', got 101"),
        ("ks", [11, 1], "expected a number in \\[0, 0\\] for 'ks', got 1"),
        ("hints", [0], "expected 2 for 'len\\(hints\\)', got 1"),
        ("value_dtype", "float16", "for 'value_dtype', got 'float16'"),
        ("dtype", "int8", "for 'dtype', got 'int8'"),
        ("rows_bytes", 161, "expected 160 for 'rows_bytes', got 161"),
        ("offset", 16, "expected a number in \\[0, 8\\] for 'offset', got 16"),
        ("offset", -8, "for 'offset', got -8"),
    ],
)
def test_selection_given_wrong_argument_raises(argument: str, value: object, text: str):
    with pytest.raises(ValueError, match=f"_native: expected .*{text.removeprefix('expected ')}"):
        native_or_none().Selection(**SELECTION | {argument: value})


@pytest.mark.parametrize(
    ("argument", "value", "text"),
    [
        ("num_elements", 0, "expected a number in \\[1, 4294967296\\] for 'num_elements', got 0"),
        ("ks", [], "for 'len\\(ks\\)', got 0"),
        ("ks", [101, 101], "for 'ks', got 101"),
        ("ks", [11, 12], "expected 11 for 'ks', got 12"),
        ("num_shares", 3, "expected 2 for 'num_shares', got 3"),
        ("num_shares", 2, "expected a number in \\[0, 0\\] for 'ks', got 11"),
        ("value_dtype", "float16", "for 'value_dtype', got 'float16'"),
        ("dtype", "int8", "for 'dtype', got 'int8'"),
        ("rows_bytes", 161, "expected 160 for 'rows_bytes', got 161"),
        ("offset", 9, "expected a number in \\[0, 8\\] for 'offset', got 9"),
        ("offset", -1, "for 'offset', got -1"),
        ("skip", [2], "expected a number in \\[0, 1\\] for 'skip', got 2"),
    ],
)
def test_sections_given_wrong_argument_raise(argument: str, value: object, text: str):
    with pytest.raises(ValueError, match=f"_native: expected .*{text.removeprefix('expected ')}"):
        native_or_none().Sections(**SECTIONS | {argument: value})


@pytest.mark.parametrize(
    ("argument", "value", "text"),
    [
        ("report_bytes", 15, "expected 16 for 'report_bytes', got 15"),
        ("instruction_set", "mmx", "for 'instruction_set', got 'mmx'"),
    ],
)
def test_calls_given_wrong_argument_raise(argument: str, value: object, text: str):
    native = native_or_none()
    options = {"report": 0, "report_bytes": 16, "num_threads": 1} | {argument: value}
    with pytest.raises(ValueError, match=text):
        native.select_top_k([native.Selection(**SELECTION)], **options)
    with pytest.raises(ValueError, match=text):
        native.add_selected([native.Sections(**SECTIONS)], scale=1.0, **options)


def test_calls_without_anything_to_do_raise():
    native = native_or_none()
    options = {"report": 0, "report_bytes": 0}
    with pytest.raises(ValueError, match="for 'len\\(selections\\)', got 0"):
        native.select_top_k([], num_threads=1, **options)
    for call in (native.clear_selected, native.restore_selected):
        with pytest.raises(ValueError, match="for 'len\\(sections\\)', got 0"):
            call([], **options)
