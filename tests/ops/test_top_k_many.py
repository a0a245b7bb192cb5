"""Many parameters in one call: the same as one after the other, and all or nothing."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from horovod_sylvie.ops.sections import CorruptSectionError
from horovod_sylvie.ops.select_report import SelectionsReport, SelectValues
from horovod_sylvie.ops.shares import add_shares, clear_shares, select_shares
from horovod_sylvie.ops.top_k import select_top_k
from horovod_sylvie.ops.top_k_arguments import check_aligned
from horovod_sylvie.ops.top_k_many import (
    RankSections,
    Selection,
    ShareSections,
    add_many,
    clear_many,
    select_many,
)

from .shares_cases import OFFSET, blank_rows, ks_of
from .top_k_cases import gradient

SHAPES = ((70_001, 1), (20_000, 3), (5, 1), (300, 2))


def selections() -> list[Selection]:
    torch.manual_seed(0)
    found = []
    for number, (size, shares) in enumerate(SHAPES):
        ks, dtype = ks_of(size, shares, 0.01), (torch.bfloat16, torch.float32)[number % 2]
        found.append(
            Selection(
                None if number == 3 else gradient("nonfinite", size),
                torch.randn(size),
                ks,
                0.5,
                dtype,
                [0] * shares,
                torch.empty(size),
                blank_rows(size, ks, dtype, 0xA5),
                OFFSET,
            )
        )
    return found


@pytest.fixture(params=["kernel", "twin"], autouse=True)
def native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    if request.param == "twin":
        monkeypatch.setattr("horovod_sylvie.ops.top_k_kernels.native_for", lambda device: None)


def test_select_many_does_what_each_alone_does():
    together, alone = selections(), selections()
    report = select_many(together)
    for left, right, met in zip(together, alone, report.each, strict=True):
        expected = select_shares(**right.__dict__)
        assert met.threshold_bits == expected.threshold_bits == met.hints
        assert met.num_nonfinite == expected.num_nonfinite
        assert torch.equal(left.rows, right.rows)
        assert torch.equal(left.accumulated.view(torch.int32), right.accumulated.view(torch.int32))
    assert report.num_nonfinite == sum(met.num_nonfinite for met in report.each) > 0


def sections_of(chosen: list[Selection]) -> list[ShareSections]:
    return [
        ShareSections(
            each.rows,
            each.offset,
            each.ks,
            each.value_dtype,
            torch.full_like(each.residual, 7.0),
            [1] if len(each.ks) == 3 else (),
        )
        for each in chosen
    ]


def shape_of(sections: ShareSections) -> dict[str, Any]:
    return {
        "offset": sections.offset,
        "ks": sections.ks,
        "value_dtype": sections.value_dtype,
    }


def test_add_many_does_what_each_alone_does():
    chosen = selections()
    select_many(chosen)
    sections = sections_of(chosen)
    add_many(sections, scale=0.3)
    for each in sections:
        expected = torch.empty_like(each.array)
        add_shares(each.rows, scale=0.3, out=expected, skip=each.skip, **shape_of(each))
        assert torch.equal(each.array, expected)
        assert expected.any()


def test_clear_many_does_what_each_alone_does():
    chosen = selections()
    select_many(chosen)
    sections = [replace(each, skip=()) for each in sections_of(chosen)]
    clear_many(sections)
    for each in sections:
        expected = torch.full_like(each.array, 7.0)
        clear_shares(each.rows, tensor=expected, **shape_of(each))
        assert torch.equal(each.array, expected)
        assert int((expected == 0).sum()) == sum(each.ks)


def test_one_corrupt_section_of_many_raises_and_changes_nothing():
    chosen = selections()
    select_many(chosen)
    chosen[1].rows[2, OFFSET] ^= 1
    ranks = chosen[2].rows.repeat(3, 1)
    for call in (lambda sections: add_many(sections, scale=1.0), clear_many):
        sections: list[Any] = sections_of(chosen)
        with pytest.raises(CorruptSectionError, match=r"_many: the section of rank 2 .* counts"):
            call(sections)
        assert all(each.array.eq(7.0).all() for each in sections)
    ranks[1, OFFSET] ^= 1
    array = torch.full((5,), 7.0)
    sections = [RankSections(ranks, OFFSET, 1, torch.bfloat16, array)]
    text = "add_many: the section of rank 1 is corrupt: its counts .* for 5 elements, k = 1 and"
    with pytest.raises(CorruptSectionError, match=text) as caught:
        add_many(sections, scale=1.0)
    assert caught.value.rank == 1
    assert array.eq(7.0).all()
    add_many([replace(sections[0], skip=[1])], scale=1.0)
    assert array.count_nonzero() == 1


def meta_report() -> Tensor:
    """Return a report whose numbers cannot be read."""
    return torch.empty(3, 2, dtype=torch.int64, device="meta")


def test_report_of_a_device_is_read_by_who_asks_for_a_number_only():
    report = SelectionsReport(SelectValues(meta_report()), [1, 4], [1, 2])
    assert isinstance(report.num_nonfinite, Tensor)
    assert report.num_nonfinite.shape == ()
    assert [met.hints for met in report.each] == [(0,), (0,) * 4]
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        _ = report.each[1].threshold_bits
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        _ = report.each[0].num_nonfinite


def changed(selection: Selection, **changes: Any) -> Selection:
    return replace(selection, **changes)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"residual": torch.zeros(3, 2)}, ValueError, "one dimension for 'residual'"),
        ({"ks": [1, 1]}, ValueError, "1 entries for 'ks', .* got 2"),
        ({"ks": [0]}, ValueError, "a number in \\[1, 5\\] for 'ks', got 0"),
        ({"hints": [-1]}, ValueError, "for 'hints', got -1"),
        ({"scale": float("nan")}, ValueError, "finite float32 number for 'scale'"),
        ({"offset": 4}, ValueError, "multiple of 8 for 'offset'"),
        ({"value_dtype": torch.float16}, TypeError, "for 'value_dtype', got torch.float16"),
    ],
)
def test_select_many_given_wrong_argument_raises(
    changes: dict[str, Any], error: type[Exception], text: str
):
    first, _, third, _ = selections()
    with pytest.raises(error, match=f"select_many: expected .*{text}"):
        select_many([first, changed(third, **changes)])


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"array": torch.zeros(5, dtype=torch.int32)}, TypeError, "for 'array', got torch.int32"),
        ({"array": torch.zeros(0)}, ValueError, "for 'num_elements', got 0"),
        ({"rows": torch.zeros(1, 9).byte()}, ValueError, "a multiple of 8\\] for 'rows'"),
        ({"offset": 4}, ValueError, "multiple of 8 for 'offset'"),
        ({"skip": [1]}, ValueError, "for 'skip', got 1"),
    ],
)
def test_add_many_given_wrong_argument_raises(
    changes: dict[str, Any], error: type[Exception], text: str
):
    chosen = selections()
    of_shares = sections_of(chosen)[2]
    of_ranks = RankSections(chosen[2].rows, OFFSET, 1, torch.bfloat16, torch.zeros(5))
    for sections in (of_shares, of_ranks):
        with pytest.raises(error, match=f"add_many: expected .*{text}"):
            add_many([of_shares, replace(sections, **changes)], scale=1.0)


def test_bytes_on_a_gpu_must_be_aligned():
    tensor = SimpleNamespace(is_cuda=True, data_ptr=lambda: 0x100C)
    with pytest.raises(
        ValueError, match="add: expected a tensor .* for 'rows', got address 0x100c"
    ):
        check_aligned("add", "rows", tensor)
    for fine in (
        SimpleNamespace(is_cuda=True, data_ptr=lambda: 0x1008),
        SimpleNamespace(is_cuda=False, data_ptr=lambda: 0x1001),
    ):
        check_aligned("add", "rows", fine)


def test_calls_for_nothing_raise():
    for call in (select_many, clear_many, lambda none: add_many(none, scale=1.0)):
        with pytest.raises(ValueError, match=r"expected tensors on one device, got \[\]"):
            call([])


def test_select_of_one_whole_array_is_that_of_its_only_share():
    whole, shared = selections()[0], selections()[0]
    section = torch.empty(whole.rows.shape[1] - OFFSET - 8, dtype=torch.uint8)
    report = select_top_k(
        whole.grad,
        whole.residual,
        k=whole.ks[0],
        scale=whole.scale,
        value_dtype=whole.value_dtype,
        accumulated=whole.accumulated,
        section=section,
    )
    met = select_many([shared]).each[0]
    assert (report.threshold_bits,) == met.threshold_bits
    assert report.num_nonfinite == met.num_nonfinite
    assert torch.equal(section, shared.rows[0, OFFSET:-8])
    assert torch.equal(whole.accumulated.view(torch.int32), shared.accumulated.view(torch.int32))
