"""The CUDA kernels that read sections against their twins, bit for bit; they run on the host."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from horovod_sylvie.ops import top_k_kernels, top_k_twins
from horovod_sylvie.ops.checksum import checksum_kernel, checksum_twin
from horovod_sylvie.ops.sections import RankSections, Sections, ShareSections
from horovod_sylvie.ops.top_k_section import section_layout
from tests.cuda_shim import build
from tests.cuda_shim.build import STREAM

from . import shares_cases, top_k_cases
from .row_cases import same_bits
from .shares_cases import OFFSET
from .top_k_cases import GRAD_DTYPES, VALUE_DTYPES, gradient

# The first test compiles
pytestmark = pytest.mark.timeout(300)

GUARD = 64


def payloads_of(num_elements: int, k: int, value_dtype: torch.dtype, num_ranks: int) -> Tensor:
    """Return payloads with a section at byte 8 of each row. [P, B]"""
    names = ("normal", "ascending", "denormal", "cauchy", "few values")
    sections = [
        top_k_cases.select_twin(
            None, gradient(names[rank % len(names)], num_elements), k, value_dtype
        ).section
        for rank in range(num_ranks)
    ]
    padding = torch.full((num_ranks, 8), 0xFF, dtype=torch.uint8)
    return torch.cat((padding, torch.stack(sections), padding), dim=1)


def guarded(num_elements: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return an array of sevens in the middle of an array of sevens."""
    return torch.full((num_elements + 2 * GUARD,), 7.0, dtype=dtype)[GUARD:-GUARD]


def assert_like_twin(
    native: ModuleType, operation: str, sections: list[Sections], **options: Any
) -> list[list[int]]:
    """Run a kernel and its twin on the same arrays, compare everything, and return the report."""
    twins = [type(each)(**each.__dict__ | {"array": each.array.clone()}) for each in sections]
    expected = getattr(top_k_twins, operation)(twins, **options)
    report = getattr(top_k_kernels, operation)(native, sections, stream=STREAM, **options)
    assert report.tolist() == expected.tolist()
    for each, twin in zip(sections, twins, strict=True):
        assert same_bits(each.array, twin.array)
        whole = each.array._base
        if whole is not None:
            assert torch.cat((whole[:GUARD], whole[-GUARD:])).eq(7.0).all()
    return report.tolist()


@pytest.mark.parametrize("out_dtype", GRAD_DTYPES)
@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
@pytest.mark.parametrize("num_elements", [1, 33, 4095, 4097, 65_537, 140_001])
def test_add_equals_twin(
    cuda_on_host: ModuleType,
    num_elements: int,
    value_dtype: torch.dtype,
    out_dtype: torch.dtype,
):
    k = max(1, num_elements // 7)
    payloads = payloads_of(num_elements, k, value_dtype, 3)
    for skip, scale in (([], 0.3), ([1], -1e30), ([0, 1, 2], 1.0)):
        array = guarded(num_elements, out_dtype)
        sections = RankSections(payloads, 8, k, value_dtype, array, skip)
        assert assert_like_twin(cuda_on_host, "add", [sections], scale=scale) == [[-1, 0]]


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_add_of_many_ranks_and_of_full_chunks_equals_twin(
    cuda_on_host: ModuleType, monkeypatch: pytest.MonkeyPatch, seed: str
):
    monkeypatch.setenv("HVS_CUDA_SHIM_SEED", seed)
    # Ranks in more than one group; and chunks with more elements than a block has threads
    for num_elements, k, num_ranks in ((5000, 40, 131), (9000, 9000, 6), (9000, 2500, 5)):
        payloads = payloads_of(num_elements, k, torch.bfloat16, num_ranks)
        sections = RankSections(
            payloads, 8, k, torch.bfloat16, guarded(num_elements), [num_ranks - 1]
        )
        assert_like_twin(cuda_on_host, "add", [sections], scale=1 / num_ranks)


@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
@pytest.mark.parametrize(("num_elements", "num_shares"), shares_cases.CASES[:-1])
def test_shares_are_added_cleared_and_restored_as_by_twins(
    cuda_on_host: ModuleType, num_elements: int, num_shares: int, value_dtype: torch.dtype
):
    for density in (0.001, 0.3):
        ks = shares_cases.ks_of(num_elements, num_shares, density)
        rows = shares_cases.select_twin(None, torch.randn(num_elements), ks, value_dtype).rows
        for skip in ([], [num_shares - 1]):
            sections = ShareSections(
                rows, OFFSET, ks, value_dtype, guarded(num_elements, torch.float16), skip
            )
            assert_like_twin(cuda_on_host, "add", [sections], scale=-0.3)
        for operation in ("clear", "restore"):
            array = guarded(num_elements)
            sections = ShareSections(rows, OFFSET, ks, value_dtype, array)
            report = assert_like_twin(cuda_on_host, operation, [sections])
            assert report == [[-1, 0]]
            assert int((array != 7.0).sum()) == sum(ks)


def sections_of_all_kinds() -> list[Sections]:
    found: list[Sections] = []
    for number, size in enumerate((1, 70_001, 300, 20_000, 5000)):
        value_dtype, dtype = VALUE_DTYPES[number % 2], GRAD_DTYPES[number % 3]
        k = 1 + size // 50
        rows = payloads_of(size, k, value_dtype, 3)
        found.append(RankSections(rows, 8, k, value_dtype, guarded(size, dtype), [number % 4]))
        ks = shares_cases.ks_of(size, 3, 0.02)
        rows = shares_cases.select_twin(None, torch.randn(size), ks, value_dtype).rows
        found.append(ShareSections(rows, OFFSET, ks, value_dtype, guarded(size, dtype)))
    found[6] = RankSections(**found[6].__dict__ | {"skip": []})
    return found


def values_of(sections: RankSections) -> slice:
    """Return where the values are in each row."""
    layout = section_layout(sections.array.numel(), sections.k, sections.value_dtype)
    return slice(sections.offset + layout.values_begin, sections.offset + layout.values_end)


def test_sections_of_many_parameters_at_once_equal_twins(cuda_on_host: ModuleType):
    sections = sections_of_all_kinds()
    before = build.num_launches(cuda_on_host)
    report = assert_like_twin(cuda_on_host, "add", sections, scale=0.25)
    assert report == [[-1, 0]] * len(sections)
    # Two uploads, four kernels that check, one that adds
    assert build.num_launches(cuda_on_host) - before == 7


def test_one_corrupt_section_of_many_is_reported_and_nothing_is_written(
    cuda_on_host: ModuleType,
):
    sections = sections_of_all_kinds()
    sections[3].rows[2, OFFSET] ^= 1  # a count
    sections[6].rows[1, values_of(sections[6])] = 0xFF  # NaN
    report = assert_like_twin(cuda_on_host, "add", sections, scale=1.0)
    assert report[3] == [2, 1]
    assert report[6] == [1, 3]
    assert all(row == [-1, 0] for place, row in enumerate(report) if place not in {3, 6})
    assert all(each.array.eq(7.0).all() for each in sections)


@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
def test_corrupt_bytes_are_reported_as_by_the_twin_and_harm_nothing(
    cuda_on_host: ModuleType, value_dtype: torch.dtype
):
    size, k = 70_000, 40
    values_begin = section_layout(size, k, value_dtype).values_begin
    good = top_k_cases.select_twin(None, gradient("normal", size), k, value_dtype).section
    generator = torch.Generator().manual_seed(1)
    problems = set()
    for number in range(150):
        rows = good.repeat(2, 1)
        # Alone, or many at once; a bit, or the whole byte
        count = 1 if number % 3 else 20
        places = torch.randint(len(good), (count,), generator=generator)
        flips = torch.randint(1, 256, (count,), generator=generator).to(torch.uint8)
        rows[1, places] ^= flips if number % 2 else torch.tensor(1 << number % 8).to(torch.uint8)
        if number % 10 == 7:
            rows[1, values_begin + 8 : values_begin + 12] = 0xFF  # NaN
        operation = ("add", "clear", "restore")[number % 3]
        sections: Sections = ShareSections(rows[1:], 0, (k,), value_dtype, guarded(size))
        options = {}
        if operation == "add":
            sections = RankSections(rows, 0, k, value_dtype, guarded(size))
            options = {"scale": 1.0}
        report = assert_like_twin(cuda_on_host, operation, [sections], **options)
        problems.add(report[0][1])
    assert problems == {0, 1, 2, 3}


def test_random_bytes_are_refused(cuda_on_host: ModuleType):
    for size, k in ((1, 1), (5000, 100), (140_000, 5000)):
        nbytes = top_k_cases.section_bytes(size, k, torch.float32)
        rows = torch.randint(256, (3, nbytes), dtype=torch.uint8)
        sections = RankSections(rows, 0, k, torch.float32, guarded(size))
        assert assert_like_twin(cuda_on_host, "add", [sections], scale=1.0) == [[0, 1]]


def test_sections_that_are_not_aligned_raise(cuda_on_host: ModuleType):
    rows = torch.zeros(92, dtype=torch.uint8)[4:].view(1, 88)
    sections = [ShareSections(rows, 0, (11,), torch.float32, torch.zeros(100))]
    for call in (top_k_kernels.clear, top_k_kernels.restore):
        with pytest.raises(ValueError, match="multiples of 8 as address, row and offset"):
            call(cuda_on_host, sections, stream=STREAM)
    with pytest.raises(ValueError, match="multiples of 8 as address, row and offset"):
        top_k_kernels.add(cuda_on_host, sections, scale=1.0, stream=STREAM)


def test_sections_in_unknown_stream_raise_with_the_reason(cuda_on_host: ModuleType):
    sections = [ShareSections(torch.zeros(1, 88).byte(), 0, (11,), torch.float32, torch.zeros(100))]
    for name in ("clear", "restore"):
        text = f"{name}_selected: CUDA refused to run a kernel: invalid resource handle"
        with pytest.raises(RuntimeError, match=text):
            getattr(top_k_kernels, name)(cuda_on_host, sections, stream=STREAM + 1)


@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.parametrize("nbytes", [0, 8, 72, 4096, 300_008])
def test_checksum_equals_twin(cuda_on_host: ModuleType, nbytes: int, num_rows: int):
    rows = torch.randint(256, (num_rows, nbytes), dtype=torch.uint8)
    assert torch.equal(checksum_kernel(cuda_on_host, rows, stream=STREAM), checksum_twin(rows))
