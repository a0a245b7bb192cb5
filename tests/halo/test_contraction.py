"""The bounds of codecs' errors: worked by hand, never exceeded, and nearly reached."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from horovod_sylvie.halo.codec import Codec, FullPrecision, Half
from horovod_sylvie.halo.contraction import contraction_bound
from horovod_sylvie.halo.format import CodecFormat
from horovod_sylvie.halo.packed_codec import Bits, OneBit
from horovod_sylvie.halo.plan import Route

RANDOM = [Bits(1), Bits(2), Bits(4), Bits(8), OneBit("minmax")]
EXACT = [FullPrecision(), Half(), Half(torch.bfloat16), OneBit("centroid")]
CENTROID = OneBit("centroid")
WIDTHS = [1, 2, 7, 64, 300]


def send(codec: Codec, rows: Tensor, key: int = 0) -> tuple[Tensor, bool]:
    """Return what arrives of rows, and whether some cannot be represented."""
    splits = (0, len(rows))
    route = Route(0, None, torch.arange(len(rows)), splits, splits)
    format_ = CodecFormat(codec, route, num_features=rows.shape[1], dtype=rows.dtype)
    messages, nonfinite = format_.encode(rows, key)
    out = torch.zeros_like(rows)
    if not nonfinite:
        format_.decode(messages, out)
    return out, bool(nonfinite)


def floor_of(codec: Codec) -> float:
    """Return the error of an element below which a bound in relation to the row cannot hold."""
    return 2.0**-25 if codec == Half() else 2.0**-130


def check_bound(codec: Codec, row: Tensor, key: int = 0) -> None:
    """Compare the mean squared error of one row with its bound.

    The mean is over copies of the row, each rounded at random on its own. An element's squared
    error is at most 4 times its bound, so by Hoeffding's inequality the mean over them all exceeds
    the bound by more than the slack with probability 1e-9 at most.
    """
    num_features = len(row)
    copies, slack = 1, 1.0
    if codec in RANDOM:
        copies = -(-50_000 // num_features)
        slack += 4 * math.sqrt(math.log(1e9) / (2 * copies * num_features))
    out, nonfinite = send(codec, row.repeat(copies, 1), key)
    if nonfinite:
        return
    exact = row.double()
    error = (out.double() - exact).square().sum(1).mean().sqrt()
    limit = math.sqrt(slack * contraction_bound(codec, num_features)) * exact.norm()
    assert error <= limit + math.sqrt(num_features) * floor_of(codec)


@st.composite
def hostile_rows(draw: st.DrawFn, num_features: int, largest: float) -> Tensor:
    """Draw rows of few values, of two far ones, with long tails, or around a large mean."""
    values = st.floats(-largest, largest, width=32)
    few = np.array(draw(st.lists(values, min_size=1, max_size=4)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["few values", "two far", "long tails", "large mean"]))
    if kind == "few values":
        row = few[rng.integers(0, len(few), num_features)]
    elif kind == "two far":
        row = draw(st.floats(0, 0.5)) * few[0] * rng.choice([-1.0, 0.0, 1.0], num_features)
        row[0], row[-1] = few[0], few[-1]
    elif kind == "long tails":
        row = few[0] / 2.0**13 * np.clip(rng.standard_normal(num_features), -5, 5) ** 5
    else:
        row = few[0] * (
            1 + draw(st.floats(0, 0.1)) * np.clip(rng.standard_normal(num_features), -5, 5)
        )
    return torch.from_numpy(np.clip(row, -largest, largest)).float()


@given(data=st.data(), codec=st.sampled_from(RANDOM + EXACT), num_features=st.sampled_from(WIDTHS))
@settings(max_examples=300, deadline=None)
def test_error_of_hostile_rows_is_within_the_bound(data, codec: Codec, num_features: int) -> None:
    largest = 60_000.0 if codec == Half() else 2.0**100
    row = data.draw(hostile_rows(num_features, largest))
    check_bound(codec, row, data.draw(st.integers(0, 2**64 - 1)))


@pytest.mark.parametrize("codec", RANDOM + EXACT)
@pytest.mark.parametrize("size", [1e-45, 1e-40, 2.0**-126, 1e-30])
def test_error_of_denormal_rows_is_within_the_bound(size: float, codec: Codec) -> None:
    row = torch.tensor([1.0, -3.0, 2.0, 0.0, 1.0, 5.0, -7.0]) * size
    check_bound(codec, row)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("num_features", [64, 300])
def test_minmax_bound_is_nearly_reached_by_two_far_elements(num_features: int, bits: int) -> None:
    row = torch.zeros(num_features)  # halfway between two levels, as their number is even
    row[0], row[1] = -1.0, 1.0
    out, _ = send(Bits(bits), row.repeat(400, 1))
    ratio = float((out - row).square().sum(1).mean() / row.square().sum())
    assert 0.9 < ratio / contraction_bound(Bits(bits), num_features) < 1
    by_hand = (num_features - 2) * (1 / (2**bits - 1)) ** 2 / 2
    assert ratio == pytest.approx(by_hand, rel=1e-3)


@pytest.mark.parametrize("num_features", [4, 64, 300])
def test_centroid_bound_is_nearly_reached_by_two_far_elements(num_features: int) -> None:
    row = torch.full((num_features,), 1e-4)
    row[::2] = -1e-4
    row[0], row[1] = -1.0, 1.0
    out, _ = send(CENTROID, row[None])
    ratio = float((out - row).square().sum() / row.square().sum())
    assert ratio == pytest.approx(1 - 2 / num_features, rel=0.02)
    assert ratio <= contraction_bound(CENTROID, num_features) < 1


@pytest.mark.parametrize(
    ("codec", "num_features", "expected"),
    [
        (FullPrecision(), 1000, 0.0),
        (Half(), 1000, 2.0**-22),
        (Half(torch.bfloat16), 1000, 2.0**-16),
        (Bits(1), 2, 2 / 2),
        (OneBit("minmax"), 64, 64 / 2),
        (Bits(2), 18, 18 / (2 * 3**2)),
        (Bits(4), 64, 64 / (2 * 15**2)),
        (Bits(8), 64, 64 / (2 * 255**2)),
        (CENTROID, 2, 0.0),  # each mean is an element
        (CENTROID, 3, 1 - 3 / 4),  # one element against two
        (CENTROID, 4, 1 - 1 / 2),
        (CENTROID, 64, 1 - 1 / 32),
    ],
)
def test_bound_is_the_formula_and_little_more(
    codec: Codec, num_features: int, expected: float
) -> None:
    bound = contraction_bound(codec, num_features)
    assert expected <= bound <= 1.04 * expected + 0.001


@pytest.mark.parametrize("codec", [*RANDOM, CENTROID])
def test_row_of_one_element_has_no_error(codec: Codec) -> None:
    assert contraction_bound(codec, 1) == 0.0
    rows = torch.tensor([[1 / 3], [-1e-40], [3e38]])
    assert torch.equal(send(codec, rows)[0], rows)


@pytest.mark.parametrize(
    ("codec", "widest"), [(Bits(1), 1), (Bits(2), 17), (Bits(4), 436), (CENTROID, 8192)]
)
def test_codec_contracts_up_to_a_width(codec: Codec, widest: int) -> None:
    assert contraction_bound(codec, widest) < 1 <= contraction_bound(codec, widest + 1)


@pytest.mark.parametrize("codec", RANDOM + EXACT)
def test_bound_never_falls_with_pairs_of_features(codec: Codec) -> None:
    bounds = [contraction_bound(codec, num_features) for num_features in range(2, 400, 2)]
    assert bounds == sorted(bounds)


@dataclass(frozen=True)
class Rounder(FullPrecision):
    """A codec of a user's own."""


@dataclass(frozen=True)
class CarefulRounder(FullPrecision):
    """A codec of a user's own that says how small its error is."""

    def contraction_bound(self, num_features: int) -> float:
        return 0.25 / num_features


def test_codec_of_a_user_says_its_bound_or_is_refused() -> None:
    assert contraction_bound(CarefulRounder(), 2) == 0.125
    text = (
        "contraction_bound: expected FullPrecision, Half, Bits or OneBit for 'codec', or a codec "
        "with a method contraction_bound(num_features), got Rounder()."
    )
    with pytest.raises(TypeError, match=re.escape(text)):
        contraction_bound(Rounder(), 64)


@pytest.mark.parametrize("num_features", [0, -1, 2.0, True])
def test_width_that_is_none_raises(num_features) -> None:
    text = f"expected an int of at least 1 for 'num_features', got {num_features!r}."
    with pytest.raises(ValueError, match=re.escape(text)):
        contraction_bound(Bits(4), num_features)
