"""Codecs by their properties: exact where they say so, unbiased, the bytes of the formula."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from horovod_sylvie.halo.codec import Codec, FullPrecision, Half, all_finite
from horovod_sylvie.halo.message import header_rows
from horovod_sylvie.halo.packed_codec import Bits, OneBit
from horovod_sylvie.halo.plan import MessageLayout, Route

UNBIASED = [Bits(1), Bits(2), Bits(4), Bits(8), OneBit("minmax")]
PACKED = [*UNBIASED, OneBit("centroid")]
EVERY = [FullPrecision(), Half(), Half(torch.bfloat16), *PACKED]
WIDTHS = [1, 7, 8, 9, 1025]


def levels_of(codec: Codec) -> int:
    return 2 ** getattr(codec, "bits", 1) - 1


def send(codec: Codec, rows: Tensor, picked: list[int], key: int = 0) -> tuple[Tensor, bool]:
    """Encode on rank 0 of two and decode what rank 1 gets. [len(picked), F]."""
    unique, expand = torch.unique(torch.tensor(picked, dtype=torch.int64), return_inverse=True)
    splits = (0, len(picked))
    route = Route(0, unique, expand, splits, splits)
    width = codec.row_bytes(rows.shape[1], rows.dtype)
    layout = MessageLayout.of(route, header_rows(width))
    messages, nonfinite = codec.encode(rows, route, layout, key)
    assert (messages.shape, messages.dtype) == ((sum(layout.send_splits), width), torch.uint8)
    guarded = rows.new_full((len(picked) + 2, rows.shape[1]), 77.0)
    if not nonfinite:
        codec.decode(messages, layout, guarded[1:-1])
    assert bool((guarded[[0, -1]] == 77.0).all())
    return guarded[1:-1], bool(nonfinite)


def round_trip(codec: Codec, rows: Tensor, key: int = 0) -> Tensor:
    out, nonfinite = send(codec, rows, list(range(len(rows))), key)
    assert not nonfinite
    return out


def largest_step(rows: Tensor, levels: int) -> Tensor:
    """Return the most that two neighbouring levels are apart, header rounding included. [N, 1]."""
    low, high = rows.float().amin(1, keepdim=True), rows.float().amax(1, keepdim=True)
    return (high - low + low.abs() / 128) * (1 + 1 / 64) / levels + 2.0**-126


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_features", WIDTHS)
def test_full_precision_keeps_every_bit(num_features: int, dtype: torch.dtype) -> None:
    rows = torch.randn(6, num_features).to(dtype)
    rows[0], rows[1], rows[2, 0] = float("inf"), float("nan"), -0.0
    rows[3] = torch.finfo(dtype).smallest_normal / 4
    out, nonfinite = send(FullPrecision(), rows, [5, 0, 1, 2, 3, 0])
    assert torch.equal(out.view(torch.uint8), rows[[5, 0, 1, 2, 3, 0]].view(torch.uint8))
    assert not nonfinite


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_half_rounds_to_nearest(dtype: torch.dtype, half: torch.dtype) -> None:
    rows = torch.randn(5, 9).to(dtype)
    assert torch.equal(round_trip(Half(half), rows), rows.to(half).to(dtype))


@pytest.mark.parametrize(
    ("codec", "value", "flagged"),
    [
        (Half(), 65504.0, False),
        (Half(), 65520.0, True),
        (Half(), -1e30, True),
        (Half(), float("nan"), True),
        (Half(torch.bfloat16), 1e38, False),
        (Half(torch.bfloat16), 3.4e38, True),
        (Half(torch.bfloat16), float("-inf"), True),
    ],
)
def test_half_flags_what_is_beyond_its_range(codec: Half, value: float, flagged: bool) -> None:
    rows = torch.ones(3, 4)
    rows[1, 2] = value
    assert send(codec, rows, [0, 1])[1] is flagged


@pytest.mark.parametrize("codec", [Half(), *PACKED])
def test_row_that_is_not_sent_is_not_flagged(codec: Codec) -> None:
    rows = torch.ones(3, 4)
    rows[0] = float("nan")
    assert send(codec, rows, [1, 2])[1] is False


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("num_features", WIDTHS)
def test_packed_row_with_inf_or_nan_is_flagged(
    num_features: int, value: float, codec: Codec
) -> None:
    rows = torch.randn(4, num_features)
    rows[2, -1] = value
    assert send(codec, rows, [0, 2])[1] is True
    assert send(codec, rows, [0, 1, 3])[1] is False


@pytest.mark.parametrize("codec", UNBIASED)
@pytest.mark.parametrize("num_features", [2, 33])
def test_mean_over_keys_is_the_row_within_the_confidence_interval(
    num_features: int, codec: Codec
) -> None:
    rows = torch.randn(30, num_features) * torch.logspace(-3, 3, 30)[:, None] + 0.5
    num_keys = 300
    step = largest_step(rows, levels_of(codec))
    errors = sum(round_trip(codec, rows, key) - rows for key in range(num_keys)) / num_keys / step
    # Hoeffding: one element's error lies within a step, and so does the sum's, by independence,
    # with probability 1 - 1e-6 over all elements.
    one = math.sqrt(math.log(2 * rows.numel() / 1e-6) / (2 * num_keys))
    assert errors.abs().max() < one
    together = math.sqrt(math.log(2 / 1e-6) / (2 * num_keys * rows.numel()))
    assert errors.mean().abs() < together


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("num_features", WIDTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_decoded_elements_are_within_a_step(
    dtype: torch.dtype, num_features: int, codec: Codec
) -> None:
    rows = (torch.randn(8, num_features) * 3).to(dtype)
    out = round_trip(codec, rows)
    assert out.dtype == dtype
    rounding = 2 * torch.finfo(dtype).eps * rows.float().abs().amax(1, keepdim=True)
    error = (out.float() - rows.float()).abs()
    assert bool((error <= largest_step(rows, levels_of(codec)) + rounding).all())


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("num_features", WIDTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_constant_rows_are_exact(dtype: torch.dtype, num_features: int, codec: Codec) -> None:
    values = torch.tensor([0.0, -0.0, 1 / 3, -1e-3, 3e4, torch.finfo(dtype).tiny / 8]).to(dtype)
    rows = values[:, None].repeat(1, num_features)
    assert torch.equal(round_trip(codec, rows).view(torch.uint8), rows.view(torch.uint8))


@pytest.mark.parametrize("codec", PACKED)
def test_rows_of_signed_zeros_decode_to_zeros(codec: Codec) -> None:
    rows = torch.tensor([[0.0, -0.0, 0.0], [-0.0, 0.0, -0.0]])
    assert torch.equal(round_trip(codec, rows), torch.zeros(2, 3))


@pytest.mark.parametrize("codec", PACKED)
def test_denormal_rows_are_within_a_step(codec: Codec) -> None:
    rows = torch.randn(6, 9) * 1e-39
    step = (rows.amax(1) - rows.amin(1) + 2.0**-132)[:, None] / levels_of(codec)
    assert bool(((round_trip(codec, rows) - rows).abs() <= 1.1 * step + 2.0**-132).all())


@pytest.mark.parametrize("codec", EVERY)
@pytest.mark.parametrize("num_rows", [0, 3])
def test_no_rows_sent_is_a_message_of_headers(num_rows: int, codec: Codec) -> None:
    out, nonfinite = send(codec, torch.full((num_rows, 5), float("nan")), [])
    assert (tuple(out.shape), nonfinite) == ((0, 5), False)


def test_centroid_halves_the_error_on_features_behind_layer_norm_and_relu() -> None:
    rows = torch.relu(torch.nn.functional.layer_norm(torch.randn(400, 64), (64,)))
    error = {
        code: (round_trip(OneBit(code), rows) - rows).square().mean().sqrt()
        for code in ("minmax", "centroid")
    }
    assert error["centroid"] < 0.5 * error["minmax"]


@pytest.mark.parametrize("codec", PACKED)
def test_row_sent_to_several_ranks_is_quantised_once(codec: Codec) -> None:
    rows = torch.randn(3, 40)
    out, _ = send(codec, rows, [1, 2, 1, 0, 1])
    assert torch.equal(out[0], out[2]) and torch.equal(out[0], out[4])
    assert torch.equal(out[[3, 0, 1]], round_trip(codec, rows))


@pytest.mark.parametrize("codec", UNBIASED)
def test_key_alone_decides_the_rounding(codec: Codec) -> None:
    rows = torch.randn(4, 64)
    assert torch.equal(round_trip(codec, rows, 5), round_trip(codec, rows, 5))
    assert not torch.equal(round_trip(codec, rows, 5), round_trip(codec, rows, 6))


@pytest.mark.parametrize(
    ("codec", "expected"),
    [
        (FullPrecision(), [4 * n for n in WIDTHS]),
        (Half(), [2 * n for n in WIDTHS]),
        (Half(torch.bfloat16), [2 * n for n in WIDTHS]),
        (OneBit("minmax"), [5, 5, 5, 6, 133]),
        (OneBit("centroid"), [5, 5, 5, 6, 133]),
        (Bits(1), [5, 5, 5, 6, 133]),
        (Bits(2), [5, 6, 6, 7, 261]),
        (Bits(4), [5, 8, 8, 9, 517]),
        (Bits(8), [5, 11, 12, 13, 1029]),
    ],
)
def test_row_bytes_are_the_formula(codec: Codec, expected: list[int]) -> None:
    assert [codec.row_bytes(n, torch.float32) for n in WIDTHS] == expected
    assert FullPrecision().row_bytes(9, torch.float64) == 72


def test_identifiers_are_different_and_fit_two_bytes() -> None:
    identifiers = [codec.identifier for codec in EVERY]
    # one wire format under two names
    assert Bits(1).identifier == OneBit("minmax").identifier
    assert len(set(identifiers)) == len(EVERY) - 1
    assert all(0 <= identifier < 2**16 for identifier in identifiers)


@pytest.mark.parametrize("codec", EVERY)
def test_codec_is_frozen_and_hashable(codec: Codec) -> None:
    assert hash(codec) == hash(dataclasses.replace(codec))
    assert codec == dataclasses.replace(codec)
    with pytest.raises(dataclasses.FrozenInstanceError):
        codec.bits = 3  # type: ignore[attr-defined]


def test_gradients_travel_by_an_unbiased_codec() -> None:
    assert OneBit("centroid").for_gradients() == OneBit("minmax")
    for codec in (FullPrecision(), Half(), *UNBIASED):
        assert codec.for_gradients() == codec


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Bits(3), "Bits: expected one of (1, 2, 4, 8) for 'bits', got 3."),
        (lambda: Bits(True), "Bits: expected one of (1, 2, 4, 8) for 'bits', got True."),
        (lambda: Bits(4.0), "Bits: expected one of (1, 2, 4, 8) for 'bits', got 4.0."),
        (lambda: OneBit("mean"), "OneBit: expected one of ('minmax', 'centroid') for 'code', got"),
        (lambda: Half(torch.float32), "Half: expected torch.float16 or torch.bfloat16 for 'dtype'"),
    ],
)
def test_option_that_is_not_allowed_raises(make, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        make()


@pytest.mark.parametrize("codec", PACKED)
def test_packed_float64_raises_with_the_cure(codec: Codec) -> None:
    with pytest.raises(TypeError, match="float32"):
        send(codec, torch.randn(2, 8, dtype=torch.float64), [0])


@pytest.mark.parametrize("codec", EVERY)
@pytest.mark.parametrize("cut_rows", [True, False])
def test_cut_messages_raise(cut_rows: bool, codec: Codec) -> None:
    route = Route(0, None, torch.arange(3), (0, 3), (0, 3))
    width = codec.row_bytes(9, torch.float32)
    layout = MessageLayout.of(route, header_rows(width))
    messages, _ = codec.encode(torch.randn(3, 9), route, layout, 0)
    cut = messages[:-1] if cut_rows else messages[:, :-1].contiguous()
    with pytest.raises((ValueError, IndexError, RuntimeError)):
        codec.decode(cut, layout, torch.empty(3, 9))


@given(data=st.data(), codec=st.sampled_from(PACKED), num_features=st.sampled_from([1, 7, 8, 9]))
@settings(max_examples=200, deadline=None)
def test_random_bytes_raise_or_decode_to_finite_rows(data, codec: Codec, num_features: int) -> None:
    width = codec.row_bytes(num_features, torch.float32)
    raw = data.draw(st.binary(min_size=3 * width, max_size=3 * width))
    route = Route(0, None, torch.arange(0), (0, 0), (0, 2))
    layout = MessageLayout.of(route, 1)
    messages = torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(3, width)
    guarded = torch.full((4, num_features), 77.0)
    raised = ""
    try:
        codec.decode(messages, layout, guarded[1:-1])
    except ValueError as error:
        raised = str(error)
    assert ("row" in raised) if raised else bool(guarded.isfinite().all())
    assert bool((guarded[[0, -1]] == 77.0).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_one_element_that_is_not_finite_is_found_anywhere(dtype: torch.dtype, value: float) -> None:
    rows = torch.randn(5, 7).to(dtype)
    assert all_finite(rows) and all_finite(rows[:0])
    for place in range(rows.numel()):
        changed = rows.clone()
        changed.view(-1)[place] = value
        assert not all_finite(changed)
