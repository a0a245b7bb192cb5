"""Adding, restoring and clearing selected elements; and that no bytes can do harm."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from horovod_sylvie.ops.top_k import add_selected, clear_selected, restore_selected, section_bytes
from horovod_sylvie.ops.top_k_section import section_layout

from .top_k_cases import DISTRIBUTIONS, GRAD_DTYPES, VALUE_DTYPES, gradient, select_twin

D = 70_000  # two blocks, the second of 4464
K = 500


def payloads_of(*sections: Tensor) -> Tensor:
    return torch.stack(sections)


def shape_of(value_dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    return {"num_elements": D, "k": K, "value_dtype": value_dtype}


def put(section: Tensor, offset: int, value: int, dtype: torch.dtype) -> Tensor:
    """Return a copy with one little-endian number changed."""
    changed = section.clone()
    number = torch.tensor([value], dtype=torch.int64).view(torch.uint8)[: dtype.itemsize]
    changed[offset : offset + dtype.itemsize] = number
    return changed


def good_section(value_dtype: torch.dtype = torch.float32) -> Tensor:
    return select_twin(None, torch.randn(D), K, value_dtype).section


@pytest.mark.parametrize("out_dtype", GRAD_DTYPES)
@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
def test_add_sums_values_in_the_order_of_ranks(value_dtype: torch.dtype, out_dtype: torch.dtype):
    residuals = [torch.randn(D) for _ in range(3)]
    outcomes = [select_twin(None, residual, K, value_dtype) for residual in residuals]
    payloads = payloads_of(*(outcome.section for outcome in outcomes))
    out = torch.full((D,), 7.0, dtype=out_dtype)
    add_selected(payloads, offset=0, scale=1 / 3, out=out, **shape_of(value_dtype))
    factor = torch.tensor(1 / 3)
    expected = torch.zeros(D)
    for residual, outcome in zip(residuals, outcomes, strict=True):
        expected = expected + (residual - outcome.accumulated) * factor
    assert torch.equal(out, expected.to(out_dtype))


def test_add_of_all_elements_equals_the_sum_of_gradients():
    grads = [torch.randn(D) for _ in range(2)]
    payloads = payloads_of(*(select_twin(None, grad, D).section for grad in grads))
    out = torch.empty(D)
    add_selected(
        payloads, offset=0, num_elements=D, k=D, value_dtype=torch.float32, scale=1.0, out=out
    )
    assert torch.equal(out, 0.0 + grads[0] + grads[1])


def test_add_does_not_look_at_skipped_ranks():
    payloads = payloads_of(good_section(), good_section(), good_section())
    out, expected = torch.empty(D), torch.empty(D)
    add_selected(payloads[[0, 2]], offset=0, scale=1.0, out=expected, **shape_of())
    payloads[1] = 0xFF
    add_selected(payloads, offset=0, scale=1.0, out=out, skip=[1], **shape_of())
    assert torch.equal(out, expected)
    add_selected(payloads, offset=0, scale=1.0, out=out, skip=(0, 1, 2), **shape_of())
    assert torch.equal(out, torch.zeros(D))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
def test_restore_undoes_a_selection_bit_for_bit(value_dtype: torch.dtype, distribution: str):
    sums = gradient(distribution, D).nan_to_num(0.0, 0.0, 0.0) + 0.0  # a -0 comes back as +0
    _, section, accumulated = select_twin(None, sums, K, value_dtype)
    restore_selected(section, residual=accumulated, **shape_of(value_dtype))
    assert torch.equal(accumulated.view(torch.int32), sums.view(torch.int32))


def test_clear_sets_exactly_the_selected_elements_to_zero():
    sums = torch.randn(D)
    _, section, accumulated = select_twin(None, sums, K)
    clear_selected(section, tensor=sums, **shape_of())
    assert torch.equal(sums, accumulated)


def corruptions(value_dtype: torch.dtype) -> list[tuple[str, Tensor]]:
    """Break each kind of field of a section, and say which text names it."""
    section = good_section(value_dtype)
    layout = section_layout(D, K, value_dtype)
    first, second = section[:8].view(torch.int32).tolist()
    last_index = layout.index_end - 2
    inf = {torch.float32: 0x7F800000, torch.bfloat16: 0x7F80}[value_dtype]
    nan = {torch.float32: 0xFFFFFFFF, torch.bfloat16: 0x7F81}[value_dtype]
    last_value = layout.values_end - value_dtype.itemsize
    indices = section[layout.index_begin : layout.index_end].view(torch.int16)
    repeated = int(indices[3]) & 0xFFFF
    moved = put(put(section, 0, first + 1, torch.int32), 4, second - 1, torch.int32)
    return [
        ("counts", put(section, 0, first + 1, torch.int32)),
        ("counts", put(section, 4, second - 1, torch.int32)),
        ("counts", put(section, 0, 0xFFFFFFFF, torch.int32)),
        ("counts", put(put(section, 0, 0, torch.int32), 4, 4465, torch.int32)),
        ("indices", moved),
        ("indices", put(section, layout.index_begin + 8, repeated, torch.int16)),
        ("indices", put(section, layout.index_begin, 0xFFFF, torch.int16)),
        ("indices", put(section, last_index, 4464, torch.int16)),
        ("indices", put(section, last_index, 0, torch.int16)),
        ("value", put(section, layout.values_begin, inf, value_dtype)),
        ("value", put(section, last_value, nan, value_dtype)),
    ]


@pytest.mark.parametrize("use_kernel", [True, False])
@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
def test_corrupt_section_raises_and_changes_nothing(
    value_dtype: torch.dtype, use_kernel: bool, monkeypatch: pytest.MonkeyPatch
):
    if not use_kernel:
        monkeypatch.setattr("horovod_sylvie.ops.top_k_kernels.native_for", lambda device: None)
    good = good_section(value_dtype)
    for word, section in corruptions(value_dtype):
        tensor = torch.full((D,), 7.0)
        corrupt = rf"_selected: expected .* corrupt one: it.*{word}"
        with pytest.raises(ValueError, match=f"restore{corrupt}"):
            restore_selected(section, residual=tensor, **shape_of(value_dtype))
        with pytest.raises(ValueError, match=f"clear{corrupt}"):
            clear_selected(section, tensor=tensor, **shape_of(value_dtype))
        text = (
            rf"add_selected: the section of rank 2 is corrupt: it.*{word}.*70000 elements, k = 500"
        )
        with pytest.raises(ValueError, match=text):
            add_selected(
                payloads_of(good, good, section, section),
                offset=0,
                scale=1.0,
                out=tensor,
                **shape_of(value_dtype),
            )
        assert torch.equal(tensor, torch.full((D,), 7.0))


@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
def test_random_bytes_never_reach_beyond_the_output(value_dtype: torch.dtype):
    good = good_section(value_dtype)
    guarded = torch.full((D + 2048,), 7.0)
    out = guarded[1024:-1024]
    num_accepted = 0
    for _ in range(400):
        section = good.clone()
        places = torch.randint(len(section), (math.ceil(10 * torch.rand(1).item()),))
        section[places] = torch.randint(256, places.shape, dtype=torch.uint8)
        try:
            add_selected(section[None], offset=0, scale=1.0, out=out, **shape_of(value_dtype))
            restore_selected(section, residual=out, **shape_of(value_dtype))
            num_accepted += 1
        except ValueError:
            pass
        assert (guarded[:1024] == 7.0).all() and (guarded[-1024:] == 7.0).all()
    assert 0 < num_accepted < 400


def call_add(**changed: Any) -> None:
    arguments = {
        "payloads": torch.zeros(2, 80, dtype=torch.uint8),
        "offset": 8,
        "num_elements": 100,
        "k": 11,
        "value_dtype": torch.float32,
        "scale": 1.0,
        "out": torch.empty(100),
        "skip": [],
    }
    assert section_bytes(100, 11, torch.float32) == 72
    add_selected(**{**arguments, **changed})


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"payloads": None}, TypeError, "expected a tensor for 'payloads', got NoneType"),
        ({"payloads": torch.zeros(2, 80)}, TypeError, "torch.uint8 for 'payloads'"),
        ({"payloads": torch.zeros(80, dtype=torch.uint8)}, ValueError, "got \\(80,\\)"),
        ({"payloads": torch.zeros(0, 80, dtype=torch.uint8)}, ValueError, "got \\(0, 80\\)"),
        ({"payloads": torch.zeros(2, 84, dtype=torch.uint8)}, ValueError, "got \\(2, 84\\)"),
        ({"offset": 4}, ValueError, "a multiple of 8 for 'offset', with 72 bytes .* got 4"),
        ({"offset": 16}, ValueError, "for 'offset', with 72 bytes from there in rows of 80"),
        ({"offset": 1.0}, TypeError, "expected an int for 'offset', got float"),
        ({"k": 101}, ValueError, "expected a number in \\[1, 100\\] for 'k', got 101"),
        ({"value_dtype": torch.float16}, TypeError, "for 'value_dtype', got torch.float16"),
        ({"scale": float("nan")}, ValueError, "a finite float32 number for 'scale', got nan"),
        ({"scale": 1e39}, ValueError, "a finite float32 number for 'scale', got 1e\\+39"),
        ({"scale": "1"}, TypeError, "expected a float for 'scale', got str"),
        (
            {"out": torch.empty(99)},
            ValueError,
            "expected shape \\(100,\\) for 'out', got \\(99,\\)",
        ),
        ({"out": torch.empty(100).double()}, TypeError, "for 'out', got torch.float64"),
        ({"skip": 1}, TypeError, "expected a list of ranks for 'skip', got int"),
        ({"skip": [2]}, ValueError, "expected a number in \\[0, 1\\] for 'skip', got 2"),
    ],
)
def test_add_given_wrong_argument_raises(
    changed: dict[str, Any], error: type[Exception], text: str
):
    with pytest.raises(error, match=f"add_selected: .*{text}"):
        call_add(**changed)
