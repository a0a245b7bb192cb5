"""The doors for shares: how elements are dealt, identities, hostile bytes, and what is refused.

The kernels are compared with their twins in test_shares_kernels.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from horovod_sylvie.ops.sections import CorruptSectionError
from horovod_sylvie.ops.selected import add_selected
from horovod_sylvie.ops.shares import (
    CHUNK_ELEMENTS,
    add_shares,
    clear_shares,
    select_shares,
    share_elements,
    share_places,
)
from horovod_sylvie.ops.top_k import section_bytes

from .shares_cases import CASES, OFFSET, blank_rows, ks_of, select_twin
from .top_k_cases import GRAD_DTYPES, VALUE_DTYPES

CPU = torch.device("cpu")


@pytest.mark.parametrize(("num_elements", "num_shares"), CASES)
def test_shares_deal_every_element_to_its_owner_in_order(num_elements: int, num_shares: int):
    element = torch.arange(num_elements)
    owner = element // CHUNK_ELEMENTS % num_shares
    sizes = []
    for share in range(num_shares):
        places = share_places(num_elements, num_shares, share, CPU)
        assert torch.equal(places, element[owner == share])
        assert len(places) == share_elements(num_elements, num_shares, share)
        index = places // (CHUNK_ELEMENTS * num_shares) * CHUNK_ELEMENTS + places % CHUNK_ELEMENTS
        assert torch.equal(index, torch.arange(len(places)))
        sizes.append(len(places))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= CHUNK_ELEMENTS
    assert sum(sizes) == num_elements


def select(
    grad: Tensor | None, residual: Tensor, ks: list[int], value_dtype: torch.dtype, **options: Any
) -> tuple[Tensor, Any]:
    """Select in place through the door; return the rows and the report."""
    rows = blank_rows(len(residual), ks, value_dtype, 0)
    report = select_shares(
        grad,
        residual,
        ks=ks,
        value_dtype=value_dtype,
        accumulated=residual,
        rows=rows,
        offset=OFFSET,
        **({"hints": [0] * len(ks)} | options),
    )
    return rows, report


def sent_of(rows: Tensor, num_elements: int, ks: list[int], value_dtype: torch.dtype) -> Tensor:
    out = torch.empty(num_elements)
    add_shares(rows, offset=OFFSET, ks=ks, value_dtype=value_dtype, scale=1.0, out=out)
    return out


@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
@pytest.mark.parametrize(("num_elements", "num_shares"), CASES)
def test_select_over_steps_conserves_mass_to_the_bit(
    num_elements: int, num_shares: int, value_dtype: torch.dtype
):
    residual, ks = torch.zeros(num_elements), ks_of(num_elements, num_shares, 0.05)
    hints = [0] * num_shares
    for dtype in (*GRAD_DTYPES, torch.float32):
        grad = torch.randn(num_elements).to(dtype)
        total = residual + grad.float()
        rows, report = select(grad, residual, ks, value_dtype, hints=hints)
        hints = list(report.threshold_bits)
        sent = sent_of(rows, num_elements, ks, value_dtype)
        assert torch.equal(total.double(), sent.double() + residual.double())
        for share in range(num_shares):
            places = share_places(num_elements, num_shares, share, CPU)
            assert int(sent[places].count_nonzero()) == ks[share]


def test_select_takes_the_largest_of_each_share_not_of_all():
    grad = torch.ones(4 * CHUNK_ELEMENTS)
    grad[CHUNK_ELEMENTS : 2 * CHUNK_ELEMENTS] = 100.0  # all of share 1
    grad[5], grad[3 * CHUNK_ELEMENTS + 1] = 2.0, -200.0
    rows, report = select(grad, torch.zeros_like(grad), [1, 2], torch.float32)
    sent = sent_of(rows, len(grad), [1, 2], torch.float32)
    assert sent.nonzero()[:, 0].tolist() == [5, CHUNK_ELEMENTS, 3 * CHUNK_ELEMENTS + 1]
    assert report.threshold_bits == (0x40000000, 0x42C80000)


def test_rows_of_all_ranks_are_summed_share_by_share():
    """What the two-phase exchange does: owners sum with add_selected, all write with add_shares."""
    num_elements, ks = 20_000, ks_of(20_000, 3, 1.0)
    grads = [torch.randn(num_elements) for _ in range(3)]
    rows = [select(g, torch.zeros(num_elements), ks, torch.float32)[0] for g in grads]
    expected = 0.0 + grads[0] + grads[1] + grads[2]
    for share, k in enumerate(ks):
        total = torch.empty(k)
        add_selected(
            torch.stack([each[share] for each in rows]),
            offset=OFFSET,
            num_elements=k,
            k=k,
            value_dtype=torch.float32,
            scale=1.0,
            out=total,
        )
        assert torch.equal(total, expected[share_places(num_elements, 3, share, CPU)])


def test_select_counts_what_is_not_finite_in_all_shares():
    grad = torch.randn(20_000)
    grad[::4099] = float("inf")
    residual = torch.zeros(20_000)
    rows, report = select(grad, residual, ks_of(20_000, 3, 0.001), torch.float32)
    assert report.num_nonfinite == 5
    sent = sent_of(rows, 20_000, ks_of(20_000, 3, 0.001), torch.float32)
    grad[::4099] = 0.0  # there, the residual is kept
    assert torch.equal(sent + residual, grad)


def test_doors_without_the_library_give_the_same_bits(monkeypatch: pytest.MonkeyPatch):
    grad, ks = torch.randn(20_000), ks_of(20_000, 3, 0.01)
    outcomes = []
    for native in (True, False):
        if not native:
            monkeypatch.setattr("horovod_sylvie.ops.top_k_kernels.native_for", lambda device: None)
        residual = torch.zeros(20_000)
        rows, report = select(grad, residual, ks, torch.bfloat16)
        cleared = torch.ones(20_000)
        clear_shares(rows, offset=OFFSET, ks=ks, value_dtype=torch.bfloat16, tensor=cleared)
        sent = sent_of(rows, 20_000, ks, torch.bfloat16)
        outcomes.append((residual, rows, cleared, sent, torch.tensor(report.threshold_bits)))
    for left, right in zip(*outcomes, strict=True):
        assert torch.equal(left, right)
    assert torch.equal(outcomes[0][2] == 0, outcomes[0][3] != 0)


@pytest.mark.parametrize("use_kernel", [True, False])
@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
def test_corrupt_section_of_any_share_raises_and_changes_nothing(
    value_dtype: torch.dtype, use_kernel: bool, monkeypatch: pytest.MonkeyPatch
):
    if not use_kernel:
        monkeypatch.setattr("horovod_sylvie.ops.top_k_kernels.native_for", lambda device: None)
    ks = ks_of(20_000, 3, 0.01)
    good = select_twin(None, torch.randn(20_000), ks, value_dtype).rows
    tensor = torch.full((20_000,), 7.0)
    shape: dict[str, Any] = {"offset": OFFSET, "ks": ks, "value_dtype": value_dtype}
    for share in range(3):
        rows = good.clone()
        rows[share, OFFSET + 4 : OFFSET + 8] = 0xFF  # the first two indices are equal
        text = f"_shares: the section of rank {share} is corrupt: its indices .* k = {ks[share]} "
        with pytest.raises(CorruptSectionError, match=f"add{text}") as caught:
            add_shares(rows, scale=1.0, out=tensor, **shape)
        assert caught.value.rank == share
        with pytest.raises(CorruptSectionError, match=f"clear{text}"):
            clear_shares(rows, tensor=tensor, **shape)
        assert torch.equal(tensor, torch.full((20_000,), 7.0))
        add_shares(rows, scale=1.0, out=torch.empty(20_000), skip=[share], **shape)


@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
def test_random_bytes_never_reach_beyond_the_output(value_dtype: torch.dtype):
    num_elements, ks = 20_000, ks_of(20_000, 3, 0.01)
    good = select_twin(None, torch.randn(num_elements), ks, value_dtype).rows
    guarded = torch.full((num_elements + 2048,), 7.0)
    out = guarded[1024:-1024]
    num_accepted = 0
    for number in range(300):
        rows = good.clone()
        places = torch.randint(rows.numel(), (1 + number % 8,))
        rows.view(-1)[places] = torch.randint(256, places.shape, dtype=torch.uint8)
        try:
            add_shares(rows, offset=OFFSET, ks=ks, value_dtype=value_dtype, scale=1.0, out=out)
            clear_shares(rows, offset=OFFSET, ks=ks, value_dtype=value_dtype, tensor=out)
            num_accepted += 1
        except CorruptSectionError:
            pass
        assert (guarded[:1024] == 7.0).all() and (guarded[-1024:] == 7.0).all()
    assert 0 < num_accepted < 300


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((0, 2, 0), ValueError, "for 'num_elements', got 0"),
        ((9, 0, 0), ValueError, "for 'num_shares', got 0"),
        ((9, 2, 2), ValueError, "expected a number in \\[0, 1\\] for 'share', got 2"),
        ((9, 2.0, 1), TypeError, "expected an int for 'num_shares', got float"),
    ],
)
def test_share_out_of_range_raises(
    arguments: tuple[Any, Any, Any], error: type[Exception], text: str
):
    with pytest.raises(error, match=f"share_elements: .*{text}"):
        share_elements(*arguments)
    with pytest.raises(error, match=f"share_places: .*{text}"):
        share_places(*arguments, CPU)


CHANGES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"ks": 11}, TypeError, "expected a list for 'ks', got int"),
    ({"ks": [11]}, ValueError, "expected 2 entries for 'ks', one for each row .* got 1"),
    ({"ks": [11, 1]}, ValueError, "expected a number in \\[0, 0\\] for 'ks', got 1"),
    ({"ks": [0, 0]}, ValueError, "expected a number in \\[1, 100\\] for 'ks', got 0"),
    ({"ks": [1.0, 0]}, TypeError, "expected an int for 'ks', got float"),
    ({"rows": None}, TypeError, "expected a tensor for 'rows', got NoneType"),
    ({"rows": torch.zeros(2, 80)}, TypeError, "torch.uint8 for 'rows'"),
    ({"rows": torch.zeros(80, dtype=torch.uint8)}, ValueError, "for 'rows', got \\(80,\\)"),
    ({"rows": torch.zeros(2, 84, dtype=torch.uint8)}, ValueError, "for 'rows', got \\(2, 84\\)"),
    ({"offset": 4}, ValueError, "a multiple of 8 for 'offset', with 72 bytes .* got 4"),
    ({"offset": 16}, ValueError, "for 'offset', with 72 bytes from there in rows of 80"),
    ({"value_dtype": torch.float16}, TypeError, "for 'value_dtype', got torch.float16"),
    ({"scale": float("inf")}, ValueError, "a finite float32 number for 'scale', got inf"),
    ({"skip": [2]}, ValueError, "expected a number in \\[0, 1\\] for 'skip', got 2"),
    ({"out": torch.zeros(100).double()}, TypeError, "for 'out', got torch.float64"),
    ({"tensor": torch.zeros(100).half()}, TypeError, "for 'tensor', got torch.float16"),
    ({"residual": torch.zeros(0)}, ValueError, "for 'num_elements', got 0"),
    ({"grad": torch.zeros(99)}, ValueError, "shape \\(100,\\) for 'grad', got \\(99,\\)"),
    ({"accumulated": torch.zeros(99)}, ValueError, "for 'accumulated', got \\(99,\\)"),
    ({"hints": [0]}, ValueError, "expected 2 entries for 'hints', .* got 1"),
    ({"hints": [0, -1]}, ValueError, "for 'hints', got -1"),
]


@pytest.mark.parametrize(("changed", "error", "text"), CHANGES)
def test_door_given_wrong_argument_raises(
    changed: dict[str, Any], error: type[Exception], text: str
):
    assert section_bytes(100, 11, torch.float32) == 72
    shape = {
        "rows": torch.zeros(2, 80, dtype=torch.uint8),
        "offset": 8,
        "ks": [11, 0],  # fewer elements than a chunk: the second share is empty
        "value_dtype": torch.float32,
    }
    doors: list[tuple[Any, dict[str, Any]]] = [
        (
            select_shares,
            {
                "grad": torch.zeros(100),
                "residual": torch.zeros(100),
                "accumulated": torch.zeros(100),
                "hints": [0, 0],
                "scale": 1.0,
            },
        ),
        (add_shares, {"out": torch.zeros(100), "scale": 1.0, "skip": []}),
        (clear_shares, {"tensor": torch.zeros(100)}),
    ]
    for door, others in doors:
        arguments = shape | others
        if changed.keys() <= arguments.keys():
            with pytest.raises(error, match=f"{door.__name__}: .*{text}"):
                door(**arguments | changed)


def test_select_into_memory_that_overlaps_the_residual_raises():
    memory = torch.zeros(150)
    with pytest.raises(ValueError, match="select_shares: expected 'residual' itself or separate"):
        select_shares(
            None,
            memory[:100],
            ks=[11, 0],
            value_dtype=torch.float32,
            hints=[0, 0],
            accumulated=memory[50:],
            rows=torch.zeros(2, 80, dtype=torch.uint8),
            offset=8,
        )
