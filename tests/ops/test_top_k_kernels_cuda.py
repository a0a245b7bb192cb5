"""The CUDA kernels that select against their twins, bit for bit; they run on the host."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor

from horovod_sylvie.ops import top_k_kernels
from horovod_sylvie.ops.selection import Selection
from tests.cuda_shim import build

from . import shares_cases, top_k_cases
from .top_k_cases import DISTRIBUTIONS, GRAD_DTYPES, VALUE_DTYPES, Outcome, gradient, same

# The first test compiles
pytestmark = pytest.mark.timeout(300)

Select = Callable[..., Outcome]


@pytest.fixture
def select(cuda_on_host: ModuleType) -> Select:
    def select_here(*arguments: object, **options: object) -> Outcome:
        return top_k_cases.select_kernel(
            *arguments, native=cuda_on_host, stream=build.STREAM, **options
        )

    return select_here


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("num_elements", [1, 7, 33, 4095, 4097, 65_536, 65_537, 140_001])
def test_select_equals_twin(select: Select, num_elements: int, distribution: str):
    grad = gradient(distribution, num_elements)
    # Each combination of a few choices: going round in circles of coprime lengths meets most pairs
    dtypes = itertools.cycle(GRAD_DTYPES)
    residuals = itertools.cycle([torch.zeros(num_elements), torch.randn(num_elements)])
    value_dtypes = itertools.cycle([*VALUE_DTYPES, *VALUE_DTYPES[::-1], torch.float32])
    counts = {1, num_elements // 100, num_elements // 2, num_elements - 1, num_elements}
    few = {1 + num_elements // 100, num_elements}
    for k in sorted(counts - {0} if num_elements < 10_000 else few):
        arguments = (grad.to(next(dtypes)), next(residuals), k, next(value_dtypes), -0.3)
        outcome = select(*arguments, hint=12345, in_place=k % 2 == 0)
        assert same(outcome, top_k_cases.select_twin(*arguments)), k


@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
@pytest.mark.parametrize("grad_dtype", [None, *GRAD_DTYPES])
@pytest.mark.parametrize("distribution", ["normal", "denormal", "largest", "nonfinite"])
def test_select_of_every_dtype_equals_twin(
    select: Select,
    distribution: str,
    grad_dtype: torch.dtype | None,
    value_dtype: torch.dtype,
):
    numbers = gradient(distribution, 9001)
    residual = numbers.nan_to_num(0.0, 0.0, 0.0).flip(0)
    grad = None if grad_dtype is None else numbers.to(grad_dtype)
    for scale, k in ((1.0, 90), (0.7, 4500), (1e38, 9000)):
        arguments = (grad, residual, k, value_dtype, scale)
        assert same(select(*arguments), top_k_cases.select_twin(*arguments)), (scale, k)


def test_select_of_zeros_of_either_sign_equals_twin(select: Select):
    numbers = torch.zeros(5000)
    numbers[::3] = -0.0
    for value_dtype, k in itertools.product(VALUE_DTYPES, (1, 700, 5000)):
        for grad in (None, numbers, numbers.half()):
            arguments = (grad, numbers, k, value_dtype)
            assert same(select(*arguments), top_k_cases.select_twin(*arguments))


def test_select_with_ties_at_the_threshold_takes_the_lowest_indices(select: Select):
    # Neighbours in float32, of which only the last digit of the threshold differs
    steps = torch.ones(70_000, dtype=torch.int32)
    steps[50_000::50] = 2
    steps[60_000::90] = 3
    numbers = (0x3F800000 + steps).view(torch.float32)
    for k in (1, 300, 600, 40_000):
        arguments = (None, numbers, k)
        assert same(select(*arguments), top_k_cases.select_twin(*arguments)), k


@pytest.mark.parametrize("distance", [1, 2, 3])
def test_select_of_arrays_at_any_address_equals_twin(select: Select, distance: int):
    grad = torch.randn(9000).half()[distance:]
    residual = torch.randn(9000)[distance:]
    arguments = (grad, residual, 100, torch.bfloat16)
    assert same(select(*arguments), top_k_cases.select_twin(*arguments))


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_select_in_any_order_of_blocks_and_threads_gives_the_same_bytes(
    select: Select, monkeypatch: pytest.MonkeyPatch, seed: str
):
    monkeypatch.setenv("HVS_CUDA_SHIM_SEED", seed)
    for name in ("few values", "nonfinite"):
        arguments = (gradient(name, 70_001), torch.zeros(70_001), 5000, torch.bfloat16)
        assert same(select(*arguments), top_k_cases.select_twin(*arguments)), name


@pytest.mark.parametrize("density", [0.0001, 0.01, 1.0])
@pytest.mark.parametrize(("num_elements", "num_shares"), shares_cases.CASES[:-1])
def test_select_from_shares_equals_twin(
    cuda_on_host: ModuleType, num_elements: int, num_shares: int, density: float
):
    ks = shares_cases.ks_of(num_elements, num_shares, density)
    residual = torch.randn(num_elements)
    for name, grad_dtype in (("normal", torch.float32), ("nonfinite", torch.bfloat16)):
        arguments = (gradient(name, num_elements).to(grad_dtype), residual, ks, torch.bfloat16)
        expected = shares_cases.select_twin(*arguments)
        outcome = shares_cases.select_kernel(
            *arguments, native=cuda_on_host, stream=build.STREAM, in_place=True
        )
        assert shares_cases.same(outcome, expected), name


def selections_of(seed: int) -> list[Selection]:
    """Return selections of every kind, fresh ones of the same numbers for the same seed."""
    torch.manual_seed(seed)
    shapes = itertools.cycle([(1, 1), (70_001, 1), (513, 1), (20_000, 3), (4096, 1), (8192, 4)])
    kinds = itertools.product([None, *GRAD_DTYPES], VALUE_DTYPES, [0.0005, 0.2, 1.0])
    selections = []
    for (grad_dtype, value_dtype, density), (size, shares) in zip(kinds, shapes, strict=False):
        grad = gradient("nonfinite" if shares == 3 else "cauchy", size)
        ks = shares_cases.ks_of(size, shares, density)
        selections.append(
            Selection(
                None if grad_dtype is None else grad.to(grad_dtype),
                torch.randn(size),
                ks,
                0.5,
                value_dtype,
                [0] * shares,
                torch.empty(size),
                shares_cases.blank_rows(size, ks, value_dtype, 0xA5),
                shares_cases.OFFSET,
            )
        )
    return selections


def written(selections: list[Selection]) -> list[Tensor]:
    return [
        each
        for selection in selections
        for each in (selection.accumulated.view(torch.int32), selection.rows)
    ]


def test_many_selections_at_once_equal_each_alone(cuda_on_host: ModuleType):
    together, alone = selections_of(1), selections_of(1)
    report = top_k_kernels.select(cuda_on_host, together, stream=build.STREAM)
    reports = [top_k_kernels.select(top_k_cases.native_or_none(), [each]) for each in alone]
    assert torch.equal(report, torch.cat(reports))
    assert report[:, 1].sum() > 0
    for left, right in zip(written(together), written(alone), strict=True):
        assert torch.equal(left, right)


def launches_of(native: ModuleType, selections: list[Selection]) -> int:
    before = build.num_launches(native)
    top_k_kernels.select(native, selections, stream=build.STREAM)
    return build.num_launches(native) - before


def test_number_of_launches_grows_by_uploads_only(cuda_on_host: ModuleType):
    selections = selections_of(2)
    one = launches_of(cuda_on_host, selections[:1])
    assert one == 11
    for count in (2, 12, len(selections)):
        words = 18 * sum(each.num_filled for each in selections[:count])
        assert launches_of(cuda_on_host, selections[:count]) == one - 1 + -(-words // 496)


def test_select_writes_nothing_beyond_its_arrays(cuda_on_host: ModuleType):
    guard = 64
    for size, k in ((1, 1), (4097, 4097), (70_001, 700)):
        selection = Selection(
            torch.randn(size),
            torch.randn(size),
            (k,),
            1.0,
            torch.bfloat16,
            (0,),
            torch.full((size + 2 * guard,), 7.0)[guard:-guard],
            torch.full((1, 3 * top_k_cases.section_bytes(size, k, torch.bfloat16)), 0xA5).byte(),
            top_k_cases.section_bytes(size, k, torch.bfloat16),
        )
        native = cuda_on_host
        calls = [top_k_kernels.selection_call(native, selection)]
        nbytes = native.select_workspace_bytes(calls)
        workspace = torch.full((nbytes + 2 * guard,), 0xA5, dtype=torch.uint8)
        report = torch.full((6,), -9)
        native.select_top_k(
            calls,
            report=report[2:].data_ptr(),
            report_bytes=16,
            num_threads=1,
            stream=build.STREAM,
            workspace=workspace[guard:].data_ptr(),
            workspace_bytes=nbytes,
        )
        assert report[:2].tolist() == report[4:].tolist() == [-9, -9]
        whole = selection.accumulated._base
        assert torch.cat((whole[:guard], whole[-guard:])).eq(7.0).all()
        assert torch.cat((workspace[:guard], workspace[-guard:])).eq(0xA5).all()
        parts = selection.rows[0].chunk(3)
        assert torch.cat((parts[0], parts[2])).eq(0xA5).all()


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"workspace_bytes": 100}, "for 'workspace_bytes', got 100"),
        ({"workspace": 8}, "expected a multiple of 16 for 'workspace', got 8"),
    ],
)
def test_select_in_wrong_workspace_raises(
    cuda_on_host: ModuleType, option: dict[str, int], text: str
):
    calls = [top_k_kernels.selection_call(cuda_on_host, selections_of(3)[0])]
    options = {"workspace": 0, "workspace_bytes": 1 << 20, "report": 0, "report_bytes": 16}
    with pytest.raises(ValueError, match=text):
        cuda_on_host.select_top_k(calls, num_threads=1, stream=build.STREAM, **options | option)


def test_select_into_section_that_is_not_aligned_raises(select: Select, cuda_on_host: ModuleType):
    selection = selections_of(4)[0]
    rows = torch.zeros(selection.rows.numel() + 4, dtype=torch.uint8)[4:].view(1, -1)
    moved = Selection(**selection.__dict__ | {"rows": rows})
    with pytest.raises(ValueError, match="multiples of 8 as address, row and offset for 'rows'"):
        top_k_kernels.select(cuda_on_host, [moved], stream=build.STREAM)


def test_select_in_unknown_stream_raises_with_the_reason(cuda_on_host: ModuleType):
    with pytest.raises(RuntimeError, match="select_top_k: CUDA refused to run a kernel: invalid"):
        top_k_kernels.select(cuda_on_host, selections_of(5)[:1], stream=build.STREAM + 1)


def test_select_in_a_stream_of_a_build_without_cuda_raises():
    native = top_k_cases.native_or_none()
    if native is None or native.cuda_runtime() is not None:
        pytest.skip("needs a native library that is built without CUDA")
    with pytest.raises((RuntimeError, ValueError), match="for 'stream'"):
        top_k_kernels.select(native, selections_of(6)[:1], stream=build.STREAM)
