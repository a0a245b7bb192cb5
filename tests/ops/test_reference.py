"""The wire format, written out by hand, and what the codes promise, for kernel and twin alike."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from horovod_sylvie.ops import reference
from horovod_sylvie.ops.pack_rows import RowCode, pack_rows, packed_row_bytes, unpack_rows

from .row_cases import CODES, pack_twin, peculiar_rows, same_bits

# Elements on the levels: no random number matters. Two bytes of lo, two of range, then the codes.
WORKED_EXAMPLES = [
    (1, "minmax", [0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0], "0000 803f 86 01"),
    (2, "minmax", [-1.0, 0.0, 1.0, 2.0, 2.0], "80bf 4040 e4 03"),
    (4, "minmax", [0.0, 15.0, 7.0, 8.0, 1.0], "0000 7041 f0 87 01"),
    (8, "minmax", [0.0, 255.0, 128.0, 1.0], "0000 7f43 00 ff 80 01"),
    (1, "centroid", [1.0, 1.0, 3.0, 3.0, 3.0], "803f 0040 1c"),
    # literal rows: 1.1 is 0x3f8ccccd, -0 is 0x80000000
    (1, "minmax", [1.1, 1.1, 1.1], "8c3f cdcc 01"),
    (8, "minmax", [1.1, 1.1], "8c3f cdcc 01 00"),
    (1, "centroid", [-0.0], "0080 0080 00"),
    (4, "minmax", [1.0, float("nan"), 2.0], "0000 c07f 00 00"),
    (1, "centroid", [1.0, float("inf")], "0000 c07f 00"),
    (2, "minmax", [-3e38, 3e38], "0000 c07f 00"),
]


def pack_door(rows: Tensor, bits: int, code: RowCode) -> Tensor:
    """Pack all rows through the public door, which takes the kernel where there is one."""
    out = torch.empty(len(rows), packed_row_bytes(rows.shape[1], bits), dtype=torch.uint8)
    pack_rows(rows, None, bits=bits, code=code, key=1, out=out)
    return out


def round_trip(rows: Tensor, bits: int, code: RowCode) -> Tensor:
    decoded = torch.empty(rows.shape)
    unpack_rows(
        pack_door(rows, bits, code), None, num_features=rows.shape[1], bits=bits, out=decoded
    )
    return decoded


@pytest.mark.parametrize(("bits", "code", "row", "expected"), WORKED_EXAMPLES)
def test_packed_row_by_hand_is_the_byte_table(
    bits: int, code: RowCode, row: list[float], expected: str
):
    rows = torch.tensor([row])
    twin, _ = pack_twin(rows, None, bits, code)
    assert bytes(twin[0].tolist()) == bytes.fromhex(expected)
    assert bytes(pack_door(rows, bits, code)[0].tolist()) == bytes.fromhex(expected)


@pytest.mark.parametrize(("bits", "code", "row", "expected"), WORKED_EXAMPLES)
def test_unpacked_row_by_hand_is_exact(bits: int, code: RowCode, row: list[float], expected: str):
    rows = torch.tensor([row])
    payload = torch.tensor([list(bytes.fromhex(expected))], dtype=torch.uint8)
    decoded, twin = torch.empty_like(rows), torch.empty_like(rows)
    report = unpack_rows(payload, None, num_features=len(row), bits=bits, out=decoded)
    reference.unpack_rows(payload, None, num_features=len(row), bits=bits, out=twin)
    is_coded = not expected.startswith("0000 c07f")
    wanted = rows if is_coded else torch.full_like(rows, float("nan"))
    assert same_bits(decoded, wanted)
    assert same_bits(twin, wanted)
    found = (report.num_nonfinite, report.first_nonfinite_row)
    assert found == ((0, -1) if is_coded else (1, 0))


@pytest.mark.parametrize(("bits", "code"), CODES)
@pytest.mark.parametrize("num_features", [1, 7, 8, 9, 602, 1025])
def test_constant_rows_of_any_value_round_trip_exactly(num_features: int, bits: int, code: RowCode):
    patterns = torch.randint(-(2**31), 2**31, (500,)).to(torch.int32)
    edges = torch.tensor([0.0, -0.0, 1e-45, -1e-45, 3.4028235e38, -3.4028235e38, 1.1])
    values = torch.cat((edges, patterns.view(torch.float32)))
    values = values[values.isfinite()]
    rows = values[:, None].expand(-1, num_features)
    assert same_bits(round_trip(rows, bits, code), rows.contiguous())


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("scale", [1.0, 1e-42, 1e-30, 1e30])
def test_minmax_decoded_mean_over_many_rows_is_the_element(bits: int, scale: float):
    """The interval is 5 deviations of the mean, by the worst variance of a step, (step / 2) ** 2.

    Added to it are what the 16-bit probabilities allow, 2**-17 of a step, and fp32 rounding.
    """
    num_rows, num_features = 20_000, 67
    rows = ((torch.randn(num_features) + 0.3) * scale).expand(num_rows, -1)
    lo, span = pack_door(rows[:1], bits, "minmax")[0, :4].view(torch.bfloat16).to(torch.float64)
    row = rows[0].to(torch.float64)
    # the header, rounded to bf16, does not cut the row off
    assert lo <= row.min()
    assert lo + span >= row.max() * (1 - 2**-23)
    step = span / (2**bits - 1)
    interval = step * (5 * 0.5 / num_rows**0.5 + 2**-17) + 2**-22 * row.abs().max()
    if scale < 1e-38:
        interval += 2**bits * 2**-150  # half of the smallest fp32 in every step
    mean = round_trip(rows, bits, "minmax").to(torch.float64).mean(dim=0)
    assert ((mean - row).abs() < interval).all()


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_minmax_decoded_mean_over_many_keys_is_the_element(bits: int):
    num_keys, num_features = 3000, 40
    row = torch.randn(1, num_features)
    payload = torch.empty(num_keys, packed_row_bytes(num_features, bits), dtype=torch.uint8)
    for key in range(num_keys):
        pack_rows(row, None, bits=bits, key=key, out=payload[key : key + 1])
    decoded = torch.empty(num_keys, num_features)
    unpack_rows(payload, None, num_features=num_features, bits=bits, out=decoded)
    step = (decoded.max() - decoded.min()) / (2**bits - 1)
    assert (decoded.mean(dim=0) - row[0]).abs().max() < 5 * 0.5 * step / num_keys**0.5


def test_minmax_errors_of_columns_and_rows_are_independent():
    """Row sums and column sums of fair bits have the binomial variance; 5 deviations of it."""
    num_rows, num_columns = 4000, 512
    row = torch.full((num_columns + 2,), 0.5)
    row[0], row[-1] = 0.0, 1.0
    codes = round_trip(row.expand(num_rows, -1), 1, "minmax")[:, 1:-1]
    for sums, count in ((codes.sum(dim=1), num_columns), (codes.sum(dim=0), num_rows)):
        spread = (2 / (len(sums) - 1)) ** 0.5  # relative deviation of a sample variance
        assert abs(sums.var().item() / (count / 4) - 1) < 5 * spread


def test_minmax_decoded_element_is_one_of_the_two_levels_around_it():
    rows = torch.randn(300, 129)
    for bits in (1, 2, 4, 8):
        decoded = round_trip(rows, bits, "minmax")
        step = (rows.amax(1) - rows.amin(1)) * (1 + 2**-6) / (2**bits - 1)
        assert ((decoded - rows).abs() <= step[:, None] * (1 + 2**-12) + 2**-8).all()


def test_centroid_has_half_the_error_of_minmax():
    rows = torch.randn(500, 256)
    error = {code: (round_trip(rows, 1, code) - rows).norm() for code in ("minmax", "centroid")}
    assert error["centroid"] < 0.5 * error["minmax"]


def test_twin_in_chunks_equals_twin_in_one(monkeypatch: pytest.MonkeyPatch):
    rows = peculiar_rows(33)
    whole = pack_twin(rows, None, 2, "minmax")
    monkeypatch.setattr(reference, "_CHUNK_ELEMENTS", 5 * 33)
    chunked = pack_twin(rows, None, 2, "minmax")
    assert torch.equal(whole[0], chunked[0])
    assert whole[1] == chunked[1]
