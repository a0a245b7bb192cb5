"""The CUDA row kernels, run on the host, against those of the CPU and the twins: bit for bit."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor

from horovod_sylvie.ops import reference, row_kernels
from horovod_sylvie.ops.pack_rows import RowCode, packed_row_bytes
from tests.cuda_shim.build import STREAM

from .row_cases import CODES, DTYPES, KEY, pack_twin, peculiar_rows, same_bits

# The first test compiles
pytestmark = pytest.mark.timeout(300)

# Around the steps of 16 columns, the bytes, and where rows leave the registers
WIDTHS = (1, 7, 8, 15, 16, 17, 33, 64, 127, 128, 129, 256, 300, 511, 512, 513, 602, 1025)
GUARD = 64


def pack(
    native: ModuleType, rows: Tensor, index: Tensor | None, bits: int, code: RowCode
) -> tuple[Tensor, list[int]]:
    """Pack into the middle of guard bytes, which must stay."""
    num_packed = len(rows) if index is None else len(index)
    width = packed_row_bytes(rows.shape[1], bits)
    memory = torch.full((2 * GUARD + num_packed * width,), 0xA5, dtype=torch.uint8)
    out = memory[GUARD : len(memory) - GUARD].view(num_packed, width)
    report = row_kernels.pack_rows(
        native, rows, index, bits=bits, code=code, key=KEY, out=out, stream=STREAM
    )
    assert (memory[:GUARD] == 0xA5).all()
    assert (memory[-GUARD:] == 0xA5).all()
    return out, report.tolist()


def unpack(
    native: ModuleType, payload: Tensor, index: Tensor | None, bits: int, out: Tensor
) -> list[int]:
    report = row_kernels.unpack_rows(
        native,
        payload,
        index,
        num_features=out.shape[1],
        bits=bits,
        out=out,
        stream=STREAM,
    )
    return report.tolist()


@pytest.fixture(params=["0", "3"], autouse=True)
def order_of_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HVS_CUDA_SHIM_SEED", request.param)


@pytest.mark.parametrize(("bits", "code"), CODES)
@pytest.mark.parametrize("num_features", WIDTHS)
def test_pack_on_peculiar_rows_equals_twin(
    cuda_on_host: ModuleType, num_features: int, bits: int, code: RowCode
):
    for dtype in DTYPES:
        rows = peculiar_rows(num_features, dtype)
        index = torch.randint(len(rows), (2 * len(rows) + 1,))
        expected, expected_report = pack_twin(rows, index, bits, code)
        packed, report = pack(cuda_on_host, rows, index, bits, code)
        assert torch.equal(packed, expected), dtype
        assert report == expected_report, dtype


@pytest.mark.parametrize(("bits", "code"), CODES)
@pytest.mark.parametrize("num_features", WIDTHS)
def test_unpack_on_peculiar_rows_equals_twin(
    cuda_on_host: ModuleType, num_features: int, bits: int, code: RowCode
):
    payload, _ = pack_twin(peculiar_rows(num_features), None, bits, code)
    index = torch.randint(len(payload), (len(payload) + 1,))
    for dtype in DTYPES:
        expected = torch.full((len(index), num_features), 7.0, dtype=dtype)
        expected_report = reference.unpack_rows(
            payload, index, num_features=num_features, bits=bits, out=expected
        )
        # one row further on in memory: another alignment
        memory = torch.full((len(index) + 2, num_features), 9.0, dtype=dtype)
        report = unpack(cuda_on_host, payload, index, bits, memory[1:-1])
        assert same_bits(memory[1:-1], expected), dtype
        assert report == expected_report.tolist(), dtype
        assert (memory[0] == 9.0).all()
        assert (memory[-1] == 9.0).all()


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_unpack_on_random_bytes_equals_twin(cuda_on_host: ModuleType, bits: int):
    num_features = 37
    payload = torch.randint(256, (900, packed_row_bytes(num_features, bits)), dtype=torch.uint8)
    payload[::2, 4:] = 0  # else hardly a literal is valid
    payload[::5, 0:4] = torch.tensor([0, 0, 0xC0, 0x7F], dtype=torch.uint8)
    expected = torch.full((len(payload), num_features), 7.0)
    decoded = expected.clone()
    expected_report = reference.unpack_rows(
        payload, None, num_features=num_features, bits=bits, out=expected
    )
    report = unpack(cuda_on_host, payload, None, bits, decoded)
    assert same_bits(decoded, expected)
    assert report == expected_report.tolist()
    assert min(report[1:3]) >= 0  # both kinds were met
    assert report[3] < -1


@pytest.mark.parametrize(("bits", "code"), CODES)
def test_pack_of_any_strides_equals_pack_of_contiguous(
    cuda_on_host: ModuleType, bits: int, code: RowCode
):
    table = torch.randn(40, 70)
    views = [
        table[:, 3:36],  # rows with a gap
        table[::2],
        table[0].expand(20, 70),  # one row, stride 0
        table.t(),  # features far apart: copied
        table[:, 5:6],
    ]
    index = torch.stack((torch.arange(9), torch.arange(9)), dim=1)[:, 0]
    for view in views:
        packed, _ = pack(cuda_on_host, view, index, bits, code)
        assert torch.equal(packed, pack_twin(view.contiguous(), index, bits, code)[0])


@pytest.mark.parametrize("number", [-1, 6, 2**62, -(2**63)])
@pytest.mark.parametrize("position", [0, 500, 998])
def test_index_outside_is_reported_and_nothing_is_written(
    cuda_on_host: ModuleType, number: int, position: int
):
    index = torch.arange(999) % 6
    index[[position, 998]] = number
    rows = torch.randn(6, 9)
    packed, report = pack(cuda_on_host, rows, index, 1, "minmax")
    assert report == [position, -1, -1, -1]
    assert (packed == 0xA5).all()
    decoded = torch.full((999, 9), 7.0)
    payload, _ = pack_twin(rows, None, 1, "minmax")
    assert unpack(cuda_on_host, payload, index, 1, decoded) == [position, -1, -1, -1]
    assert (decoded == 7.0).all()


@pytest.mark.parametrize(("bits", "code"), CODES)
def test_nonfinite_rows_among_many_are_counted_and_the_first_is_named(
    cuda_on_host: ModuleType, bits: int, code: RowCode
):
    rows = torch.randn(2003, 33)
    rows[[1000, 1990, 2002], 5] = torch.tensor([float("nan"), float("inf"), float("-inf")])
    index = torch.arange(2003).flip(0)
    expected, expected_report = pack_twin(rows, index, bits, code)
    packed, report = pack(cuda_on_host, rows, index, bits, code)
    assert torch.equal(packed, expected)
    assert report == expected_report == [-1, -1, 0, -4]
    decoded = torch.empty(2003, 33)
    assert unpack(cuda_on_host, packed, None, bits, decoded) == [-1, -1, 0, -4]
    assert decoded.isnan().all(dim=1).sum() == 3


def test_kernels_run_in_the_stream_that_they_are_given(cuda_on_host: ModuleType):
    out = torch.empty(4, 6, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="pack_rows: CUDA refused .*invalid resource handle"):
        row_kernels.pack_rows(
            cuda_on_host,
            torch.randn(4, 9),
            None,
            bits=1,
            code="minmax",
            key=0,
            out=out,
            stream=STREAM + 1,
        )


def test_library_on_the_host_says_that_kernels_can_run(cuda_on_host: ModuleType):
    assert cuda_on_host.cuda_problem(0) is None
    assert cuda_on_host.cuda_problem(1) == "invalid device ordinal"
    (device,) = cuda_on_host.cuda_runtime()["devices"]
    assert device["name"] == "CUDA sources on the host"
