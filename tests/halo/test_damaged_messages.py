"""Messages that were right and then damaged: refused with nothing changed, or finite rows."""

from __future__ import annotations

from contextlib import suppress

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from horovod_sylvie.halo.codec import Codec, Half
from horovod_sylvie.halo.delta import Delta
from horovod_sylvie.halo.mixed_format import MixedFormat
from horovod_sylvie.halo.packed_codec import Bits, OneBit
from horovod_sylvie.halo.plan import Route
from tests.halo.delta_streams import EVERY, exchange, random_rows, stream_of

CODECS: dict[int, Codec] = {1: OneBit(), 2: Bits(2), 4: Bits(4), 8: Bits(8)}
NUM_FEATURES = 9


@st.composite
def damages(draw: st.DrawFn) -> list[tuple[float, int]]:
    """Draw places, as parts of a message, and what is written there."""
    byte = st.sampled_from([0x00, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
    return draw(st.lists(st.tuples(st.floats(0, 1), byte), min_size=1, max_size=6))


def damaged(messages: Tensor, damage: list[tuple[float, int]]) -> Tensor:
    """Return a copy of messages with some bytes changed."""
    flat = messages.flatten().clone()
    for part, value in damage:
        flat[round(part * (len(flat) - 1))] = value
    return flat.view(messages.shape)


@given(damage=damages(), codec=st.sampled_from(EVERY), num_before=st.integers(0, 2))
@example(damage=[(1.0, 0x7C)], codec=Half(), num_before=1)  # a NaN in a change
@settings(max_examples=300, deadline=None)
def test_damaged_exchange_of_a_stream_is_refused_or_moves_it_to_finite_copies(
    damage: list[tuple[float, int]], codec: Codec, num_before: int
) -> None:
    stream = stream_of(Delta(codec), [0, 2, 1], NUM_FEATURES)
    for epoch in range(num_before):
        exchange(stream, random_rows(3, NUM_FEATURES, seed=epoch), epoch)
    before = stream.copies
    received = None if before is None else before.received.clone()
    form = stream.format()
    messages, _ = form.encode(random_rows(3, NUM_FEATURES, seed=9), 9)
    out = torch.empty(3, NUM_FEATURES)
    try:
        form.decode(damaged(messages, damage), out)
    except ValueError:
        assert stream.copies is before
        assert received is None or torch.equal(before.received, received)
        form.decode(messages, out)  # as if nothing had been
    assert stream.copies is not before
    assert bool(stream.copies.received.isfinite().all())
    assert torch.equal(out, stream.copies.received)


@given(damage=damages(), bits=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=6))
@settings(max_examples=300, deadline=None)
def test_damaged_rows_of_several_widths_are_refused_or_decode_to_finite_rows(
    damage: list[tuple[float, int]], bits: list[int]
) -> None:
    splits = (0, len(bits))
    form = MixedFormat(
        Route(0, None, torch.arange(len(bits)), splits, splits),
        codecs=CODECS,
        sent=torch.tensor(bits, dtype=torch.uint8),
        received=torch.tensor(bits, dtype=torch.uint8),
        version=0,
        num_features=NUM_FEATURES,
        dtype=torch.float32,
    )
    messages, _ = form.encode(random_rows(len(bits), NUM_FEATURES, seed=9), 9)
    guarded = torch.full((len(bits) + 2, NUM_FEATURES), 77.0)
    with suppress(ValueError):
        form.decode(damaged(messages, damage), guarded[1:-1])
    assert bool(guarded.isfinite().all())
    assert bool((guarded[[0, -1]] == 77.0).all())
