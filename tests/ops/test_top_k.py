"""The public door that selects: identities, what it accepts, and what it refuses.

The arithmetic is tested in test_top_k_reference.py, the kernels in test_top_k_kernels.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from horovod_sylvie.ops.top_k import (
    add_selected,
    restore_selected,
    section_bytes,
    select_top_k,
)

from .top_k_cases import VALUE_DTYPES, Outcome, same, select_twin

ANY_FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def select(
    grad: Tensor | None, residual: Tensor, k: int, value_dtype: torch.dtype, **options: Any
) -> Outcome:
    """Select in place through the door."""
    section = torch.empty(section_bytes(len(residual), k, value_dtype), dtype=torch.uint8)
    report = select_top_k(
        grad,
        residual,
        k=k,
        value_dtype=value_dtype,
        accumulated=residual,
        section=section,
        **options,
    )
    return Outcome((report.threshold_bits, report.num_nonfinite), section, residual)


def received(section: Tensor, num_elements: int, k: int, value_dtype: torch.dtype) -> Tensor:
    """Return what one rank sent, dense. [D], float32."""
    out = torch.empty(num_elements)
    add_selected(
        section[None],
        offset=0,
        num_elements=num_elements,
        k=k,
        value_dtype=value_dtype,
        scale=1.0,
        out=out,
    )
    return out


@pytest.mark.parametrize(
    ("num_elements", "k", "value_dtype", "expected"),
    [
        (1, 1, torch.float32, 16),  # 4 + 2 (+ 2) + 4 (+ 4)
        (1, 1, torch.bfloat16, 16),  # 4 + 2 (+ 2) + 2 (+ 6)
        (65536, 2, torch.float32, 16),  # 4 + 4 + 8
        (65537, 2, torch.bfloat16, 16),  # 8 + 4 + 4
        (1 << 20, 10486, torch.float32, 62984),  # 64 + 20972 + 41944 (+ 4)
        (1 << 32, 1, torch.float32, 262152),  # 4 * 65536 + 2 (+ 2) + 4
    ],
)
def test_section_bytes_is_counts_indices_and_values(
    num_elements: int, k: int, value_dtype: torch.dtype, expected: int
):
    assert section_bytes(num_elements, k, value_dtype) == expected


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((0, 1, torch.float32), ValueError, "for 'num_elements', got 0"),
        (((1 << 32) + 1, 1, torch.float32), ValueError, "for 'num_elements', got 4294967297"),
        ((9, 10, torch.float32), ValueError, "expected a number in \\[1, 9\\] for 'k', got 10"),
        ((9, True, torch.float32), TypeError, "expected an int for 'k', got bool"),
        ((9, 1, torch.float64), TypeError, "for 'value_dtype', got torch.float64"),
        ((9, 1, "float32"), TypeError, "for 'value_dtype', got 'float32'"),
    ],
)
def test_section_bytes_out_of_range_raises(
    arguments: tuple[Any, Any, Any], error: type[Exception], text: str
):
    with pytest.raises(error, match=f"section_bytes: expected .*{text.removeprefix('expected ')}"):
        section_bytes(*arguments)


@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
def test_select_over_many_steps_conserves_mass(value_dtype: torch.dtype):
    num_elements, k = 100_000, 1000
    residual, hint = torch.zeros(num_elements), 0
    for _ in range(20):
        grad = torch.randn(num_elements)
        total = residual + grad
        outcome = select(grad, residual, k, value_dtype, hint=hint)
        hint = outcome.report[0]
        sent = received(outcome.section, num_elements, k, value_dtype)
        assert torch.equal(sent + residual, total)
        assert int((sent != 0).sum()) == k


@pytest.mark.parametrize("grad_dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_select_of_all_elements_sends_the_gradient(grad_dtype: torch.dtype):
    grad = torch.randn(70_000).to(grad_dtype)
    residual = torch.zeros(70_000)
    outcome = select(grad, residual, 70_000, torch.float32, scale=0.25)
    sent = received(outcome.section, 70_000, 70_000, torch.float32)
    assert torch.equal(sent, grad.float() * 0.25)
    assert torch.equal(residual, torch.zeros(70_000))


def test_select_without_gradient_sends_the_residual():
    residual = torch.tensor([3.0, -5.0, 4.0])
    outcome = select(None, residual, 2, torch.float32)
    assert outcome.report == (0x40800000, 0)
    assert received(outcome.section, 3, 2, torch.float32).tolist() == [0.0, -5.0, 4.0]
    assert residual.tolist() == [3.0, 0.0, 0.0]


def test_select_into_separate_memory_leaves_the_residual_alone():
    grad, residual = torch.randn(1000), torch.randn(1000)
    before = residual.clone()
    accumulated = torch.empty(1000)
    section = torch.empty(section_bytes(1000, 9, torch.float32), dtype=torch.uint8)
    report = select_top_k(
        grad, residual, k=9, value_dtype=torch.float32, accumulated=accumulated, section=section
    )
    assert torch.equal(residual, before)
    outcome = Outcome((report.threshold_bits, report.num_nonfinite), section, accumulated)
    assert same(outcome, select(grad, residual, 9, torch.float32))


def test_select_of_parameter_that_requires_gradients_works():
    parameter = torch.randn(100, requires_grad=True)
    parameter.sum().backward()
    outcome = select(parameter, torch.zeros(100), 100, torch.float32)
    assert torch.equal(received(outcome.section, 100, 100, torch.float32), parameter.detach())


def test_select_without_the_library_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch):
    grad, residual = torch.randn(70_000), torch.randn(70_000)
    expected = select(grad, residual.clone(), 700, torch.bfloat16)
    monkeypatch.setattr("horovod_sylvie.ops.top_k_kernels.native_for", lambda device: None)
    outcome = select(grad, residual.clone(), 700, torch.bfloat16)
    assert same(outcome, expected)
    sent = received(outcome.section, 70_000, 700, torch.bfloat16)
    assert torch.equal(sent + outcome.accumulated, residual + grad)


@settings(deadline=None, max_examples=150)
@given(
    numbers=st.lists(
        ANY_FLOAT32 | st.sampled_from([0.0, -0.0, 1.0, -1.0]), min_size=1, max_size=60
    ),
    density=st.floats(0.0, 1.0),
    hint=st.integers(0, 2**32 - 1),
    value_dtype=st.sampled_from(VALUE_DTYPES),
)
def test_select_of_any_numbers_equals_twin_and_can_be_undone(
    numbers: list[float], density: float, hint: int, value_dtype: torch.dtype
):
    sums = torch.tensor(numbers)
    k = max(1, int(density * len(numbers)))
    outcome = select(None, sums.clone(), k, value_dtype, hint=hint)
    assert same(outcome, select_twin(None, sums, k, value_dtype))
    restore_selected(
        outcome.section,
        num_elements=len(numbers),
        k=k,
        value_dtype=value_dtype,
        residual=outcome.accumulated,
    )
    assert torch.equal(outcome.accumulated, sums)


def call_select(**changed: Any) -> None:
    arguments = {
        "grad": torch.randn(100),
        "residual": torch.zeros(100),
        "k": 11,
        "value_dtype": torch.float32,
        "accumulated": torch.zeros(100),
        "section": torch.zeros(72, dtype=torch.uint8),
    }
    select_top_k(**{**arguments, **changed})


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"grad": [1.0]}, TypeError, "a tensor for 'grad', got list"),
        ({"grad": torch.zeros(100).long()}, TypeError, "for 'grad', got torch.int64"),
        ({"grad": torch.zeros(99)}, ValueError, "shape \\(100,\\) for 'grad', got \\(99,\\)"),
        ({"grad": torch.zeros(10, 10)}, ValueError, "one dimension for 'grad'.*view"),
        ({"grad": torch.zeros(200)[::2]}, ValueError, "a contiguous tensor for 'grad'"),
        ({"grad": torch.zeros(100).to_sparse()}, TypeError, "a dense tensor for 'grad'"),
        ({"grad": torch.zeros(100, device="meta")}, ValueError, "device cpu for 'grad', got meta"),
        ({"residual": torch.zeros(100).half()}, TypeError, "for 'residual', got torch.float16"),
        ({"residual": torch.zeros(0)}, ValueError, "for 'residual.numel\\(\\)', got 0"),
        ({"k": 0}, ValueError, "a number in \\[1, 100\\] for 'k', got 0"),
        ({"k": 1.0}, TypeError, "an int for 'k', got float"),
        ({"scale": float("inf")}, ValueError, "a finite float32 number for 'scale', got inf"),
        ({"scale": None}, TypeError, "a float for 'scale', got NoneType"),
        ({"value_dtype": torch.float16}, TypeError, "for 'value_dtype', got torch.float16"),
        ({"hint": -1}, ValueError, "for 'hint', got -1"),
        ({"hint": 1 << 32}, ValueError, "for 'hint', got 4294967296"),
        ({"accumulated": torch.zeros(101)}, ValueError, "for 'accumulated', got \\(101,\\)"),
        ({"section": torch.zeros(71, dtype=torch.uint8)}, ValueError, "'section'.*section_bytes"),
        ({"section": torch.zeros(72)}, TypeError, "torch.uint8 for 'section', got torch.float32"),
    ],
)
def test_select_given_wrong_argument_raises(
    changed: dict[str, Any], error: type[Exception], text: str
):
    with pytest.raises(error, match=f"select_top_k: expected .*{text}"):
        call_select(**changed)


def test_select_into_memory_that_overlaps_the_residual_raises():
    memory = torch.zeros(150)
    text = "'residual' itself or separate memory for 'accumulated', got .* by 200 bytes"
    with pytest.raises(ValueError, match=f"select_top_k: expected {text}"):
        call_select(residual=memory[:100], accumulated=memory[50:])


def test_select_kernel_equals_twin_at_one_million_elements():
    grad, residual = torch.randn(1 << 20), torch.randn(1 << 20)
    expected = select_twin(grad, residual, 10_000)
    assert same(select(grad, residual.clone(), 10_000, torch.float32), expected)
