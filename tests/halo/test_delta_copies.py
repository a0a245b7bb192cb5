"""The copies of both ends: untouched by what fails, and saved and loaded."""

from __future__ import annotations

import io
import re

import pytest
import torch

from horovod_sylvie.halo.codec import Codec
from horovod_sylvie.halo.delta import Delta
from horovod_sylvie.halo.packed_codec import Bits
from tests.halo.delta_streams import (
    CENTROID,
    EVERY,
    copies_of,
    exchange,
    random_rows,
    stream_of,
)


@pytest.mark.parametrize("num_before", [0, 1, 3])
def test_exchange_that_is_given_up_leaves_no_trace(num_before: int) -> None:
    streams = [stream_of(Delta(Bits(4)), [2, 0, 2], 8) for _ in range(2)]
    for epoch in range(num_before):
        for stream in streams:
            exchange(stream, random_rows(3, 8, seed=epoch), epoch)
    streams[0].format().encode(random_rows(3, 8, seed=99), 99)
    rows = random_rows(3, 8, seed=50)
    first, second = (stream.format() for stream in streams)
    assert (first.identifier, first.description) == (second.identifier, second.description)
    assert torch.equal(first.encode(rows, 5)[0], second.encode(rows, 5)[0])
    assert torch.equal(exchange(streams[0], rows, 5), exchange(streams[1], rows, 5))


@pytest.mark.parametrize("codec", EVERY)
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("num_before", [0, 1])
def test_inf_and_nan_are_refused_and_do_not_reach_the_copies(
    num_before: int, value: float, codec: Codec
) -> None:
    stream = stream_of(Delta(codec), [1, 2], 4)
    rows = torch.ones(3, 4)
    for _ in range(num_before):
        exchange(stream, rows)
    before = stream.copies
    bad = rows.clone()
    bad[2, 1] = value
    assert stream.format().encode(bad, 0)[1]
    assert stream.copies is before
    unsent = rows.clone()
    unsent[0] = value
    assert torch.equal(exchange(stream, unsent), rows[1:])


def test_damaged_messages_raise_and_leave_no_trace() -> None:
    stream = stream_of(Delta(Bits(4)), [0, 1], 5)
    refresh, out = stream.format(), torch.empty(2, 5)
    messages, _ = refresh.encode(torch.ones(2, 5), 0)
    damaged = messages.clone()
    damaged[-1] = 255  # a NaN
    with pytest.raises(ValueError, match="decode: expected finite rows in a refresh, got Inf or"):
        refresh.decode(damaged, out)
    assert stream.copies is None
    refresh.decode(messages, out)
    before, received = stream.copies, copies_of(stream).received.clone()
    change = stream.format()
    messages, _ = change.encode(random_rows(2, 5, seed=0), 0)
    damaged = messages.clone()
    damaged[-1] = 255  # the unused bits are not zero
    with pytest.raises(ValueError, match="corrupt row"):
        change.decode(damaged, out)
    assert stream.copies is before
    assert torch.equal(copies_of(stream).received, received)
    change.decode(messages, out)


def test_exchange_that_is_not_the_next_is_not_decoded() -> None:
    stream = stream_of(Delta(Bits(4)), [0], 4)
    rows, out = torch.ones(1, 4), torch.zeros(1, 4)
    first, second = stream.format(), stream.format()
    messages, _ = first.encode(rows, 0)
    expected = "decode: expected an exchange that was encoded against the stream's copies"
    with pytest.raises(RuntimeError, match=expected):
        second.decode(messages, out)
    first.decode(messages, out)
    for outdated in (first, second):
        outdated.encode(rows, 0)
        with pytest.raises(RuntimeError, match=expected):
            outdated.decode(messages, out)
    change = stream.format()
    change.encode(rows, 0)
    stream.reset()
    with pytest.raises(RuntimeError, match=expected):
        change.decode(messages, out)
    assert stream.copies is None


def test_rows_belong_to_the_caller_before_and_after() -> None:
    stream = stream_of(Delta(CENTROID), [1, 0], 4)
    rows = random_rows(2, 4, seed=0)
    out = exchange(stream, rows)
    expected = rows.clone()
    rows.zero_()
    out.zero_()
    assert torch.equal(copies_of(stream).sent, expected)
    assert torch.equal(copies_of(stream).received, expected[[1, 0]])


def test_state_goes_through_a_checkpoint_and_continues() -> None:
    stream = stream_of(Delta(Bits(4), refresh_every=5), [0, 2, 0], 8)
    restored = stream_of(Delta(Bits(4), refresh_every=5), [0, 2, 0], 8)
    assert stream.state() == {"exchanges": 0}
    for epoch in range(12):
        file = io.BytesIO()
        torch.save(stream.state(), file)
        file.seek(0)
        restored.load(torch.load(file, weights_only=True))
        rows = random_rows(3, 8, seed=epoch)
        assert torch.equal(exchange(stream, rows, epoch), exchange(restored, rows, epoch))
    assert stream.state()["exchanges"] == 2


def test_state_is_not_written_to_and_does_not_share_memory() -> None:
    stream = stream_of(Delta(Bits(4)), [0, 1], 8)
    exchange(stream, random_rows(2, 8, seed=0))
    state = stream.state()
    saved = {name: torch.as_tensor(value).clone() for name, value in state.items()}
    exchange(stream, random_rows(2, 8, seed=1))
    assert all(torch.equal(torch.as_tensor(state[name]), saved[name]) for name in saved)
    stream.load(state)
    for name in ("sent", "received"):
        state[name].zero_()
        stream.state()[name].zero_()
    assert torch.equal(copies_of(stream).sent, saved["sent"])
    assert torch.equal(copies_of(stream).received, saved["received"])
    stream.load({"exchanges": 0})
    assert stream.copies is None


ROW = torch.zeros(2, 8)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({}, "expected an int of at least 0 for 'exchanges' in 'state', got None."),
        ({"exchanges": -1}, "for 'exchanges' in 'state', got -1."),
        ({"exchanges": True}, "for 'exchanges' in 'state', got True."),
        ({"exchanges": 3}, "expected ['exchanges', 'received', 'sent'] in 'state', got ['exch"),
        ({"exchanges": 0, "sent": ROW}, "expected ['exchanges'] in 'state', got ['exchanges', 'se"),
        (
            {"exchanges": 3, "sent": ROW[:1], "received": ROW},
            "a tensor torch.float32 (2, 8) for 'sent' in 'state', got torch.float32 (1, 8).",
        ),
        (
            {"exchanges": 3, "sent": ROW, "received": ROW.half()},
            "a tensor torch.float32 (2, 8) for 'received' in 'state', got torch.float16 (2, 8).",
        ),
        ({"exchanges": 3, "sent": 0, "received": ROW}, "for 'sent' in 'state', got int."),
    ],
)
def test_state_that_does_not_fit_raises_and_changes_nothing(state, text: str) -> None:
    stream = stream_of(Delta(CENTROID), [0, 1], 8)
    exchange(stream, ROW)
    before = stream.copies
    with pytest.raises(ValueError, match=re.escape(text)):
        stream.load(state)
    assert stream.copies is before
