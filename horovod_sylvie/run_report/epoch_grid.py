"""A chart of what was so in which epochs: a row for each name, filled where it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .markup import Markup
from .plot_frame import (
    WIDTH,
    drawing,
    group,
    hint,
    legend,
    line,
    rectangle,
    shortened,
    width_of,
    words,
)
from .scale import Scale, linear_scale

_ROW: Final = 20.0
_BAR: Final = 12.0
_LONGEST_NAME: Final = 24
_TEXT: Final = 52.0  # of a share in per cent


@dataclass(frozen=True)
class Track:
    """One name's epochs.

    Attributes:
        name: What it is about.
        filled: Epochs in which it was so.
        known: Epochs in which that is known, those among them.
    """

    name: str
    filled: frozenset[int]
    known: frozenset[int]


def epoch_grid(
    name: str, label: str, kinds: tuple[str, str], epochs: Sequence[int], tracks: Sequence[Track]
) -> Markup:
    """Return a chart of epochs in which something was so.

    Args:
        name: Of the chart.
        label: What it shows.
        kinds: What a filled epoch is, and any other.
        epochs: All of them, in order.
        tracks: From the top.
    """
    key, key_height = legend([("s0", kinds[0]), ("track", kinds[1])], "box")
    left = 12 + max((width_of(shortened(each.name, _LONGEST_NAME)) for each in tracks), default=0.0)
    top = key_height + 10
    bottom = top + len(tracks) * _ROW
    x = linear_scale((float(epoch) for epoch in epochs), whole=True, about=8)
    x = Scale(epochs[0] - 0.5, epochs[-1] + 0.5, x.ticks, start=left, end=WIDTH - _TEXT)
    parts = [key]
    for number, each in enumerate(tracks):
        parts.append(_track(each, x, epochs, top + (number + 0.5) * _ROW, kinds))
    parts.append(line(x.start, bottom, x.end, bottom, "axis"))
    for value, text in x.ticks:
        at = x.place(value)
        parts.append(line(at, bottom, at, bottom + 4, "axis"))
        parts.append(words(at, bottom + 14, text, anchor="middle", kind="tick"))
    parts.append(words(x.end, bottom + 30, "epoch", anchor="end", kind="axis-name"))
    return drawing(name, label, bottom + 40, *parts)


def _track(
    track: Track, x: Scale, epochs: Sequence[int], y: float, kinds: tuple[str, str]
) -> Markup:
    """Return a row: one bar for each run of epochs that are alike."""
    name = shortened(track.name, _LONGEST_NAME)
    parts = [words(x.start - 8, y, name, anchor="end", kind="tick")]
    for filled, kind, text in ((False, "track", kinds[1]), (True, "s0", kinds[0])):
        chosen = track.filled if filled else track.known - track.filled
        for first, last in _runs(epochs, chosen):
            start, end = x.place(first - 0.5), x.place(last + 0.5)
            when = f"{track.name}, epochs {first} to {last}: {text}"
            parts.append(
                rectangle(start, y - _BAR / 2, end - start, _BAR, f"bar {kind}", hint(when))
            )
    share = 100 * len(track.filled) / max(1, len(track.known))
    parts.append(words(WIDTH, y, f"{share:.0f} %", anchor="end", kind="end"))
    return group("row", *parts)


def _runs(epochs: Sequence[int], chosen: frozenset[int]) -> list[tuple[int, int]]:
    """Return the first and last epoch of each run of those chosen."""
    runs: list[tuple[int, int]] = []
    goes_on = False
    for epoch in epochs:
        if epoch in chosen:
            runs = [*runs[:-1], (runs[-1][0], epoch)] if goes_on else [*runs, (epoch, epoch)]
        goes_on = epoch in chosen
    return runs
