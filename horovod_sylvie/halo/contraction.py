"""How much smaller than a row the error of its code is, at least: the contraction of a codec.

Where changes travel instead of rows, the error of one exchange is part of the change that the next
one sends. It shrinks from step to step only if a code's error is smaller than what was coded,

    E ||Q(x) - x||^2 <= c ||x||^2 with c < 1,

with Q(x) what arrives of a row x, for every finite x that the codec can represent. Here: that c.

Below some magnitude nothing is relative. With F features the exact statement is
`sqrt(E ||Q(x) - x||^2) <= sqrt(c) ||x|| + sqrt(F) d`, with d = 2^-25 for `Half(torch.float16)`
(half of its smallest number) and 2^-130 for all others (bfloat16 and float32 are denormal there).

[Note: Where the bounds come from]
A row with one element is constant, and constant rows are exact in `packed_codec.py`: 0.

Half. To nearest, with 11 (float16) or 8 (bfloat16) significant bits, an element is off by at most
2^-11 or 2^-8 of itself.

Min/max, L = 2^bits - 1 steps of size s. Stochastic rounding between two levels has at most variance
s^2 / 4. `cpp/pack_rows.hpp` rounds the minimum m down and the range up, both to bfloat16, whose
neighbours are at most 2^-7 of their size apart. So with M the maximum,

    L s <= (1 + 2^-7) (M - m + 2^-7 |m|) <= (1 + 2^-7)^2 sqrt(2) ||x||,

as |M| + |m| <= sqrt(2) ||x||. The roundings in float32 and of probabilities to 16 bits add less
than 2^-20 ||x|| to the error of an element. The bound is F times the square of an element's. It is
nearly reached: by two elements 1 and -1, and all others halfway between two levels, at zero.

Centroid. The code is the nearest row that is constant on both sides of the mean, so
||Q(x) - x||^2 = ||x||^2 - ||Q(x)||^2. Take mean zero; another mean only adds to what is kept. The
n_1 elements below sum up to -D, the n_2 others to D, so ||x||^2 <= 2 D^2, with equality where one
element on each side is all of its side; ||Q(x)||^2 = D^2 / n_1 + D^2 / n_2 >= D^2 F / floor(F^2/4).
So at least F / (2 floor(F^2/4)) of the square is kept: all of it for F = 2, and 2 / F for even F.
Rounding both means to bfloat16 takes away at most 2^-11 of that, and a mean in float32, which may
sort elements near it to the wrong side, another 2^-12, for F up to 8192 (beyond that, no bound).
"""

from __future__ import annotations

import math
from typing import Final, Protocol, runtime_checkable

import torch

from .codec import Codec, FullPrecision, Half
from .packed_codec import Bits, OneBit

_MAX_CENTROID_FEATURES: Final = 8192


@runtime_checkable
class HasContractionBound(Protocol):
    """A codec of a user's own that says how small its error is."""

    def contraction_bound(self, num_features: int) -> float:
        """Return a bound of E ||Q(x) - x||^2 / ||x||^2 over all finite rows x of F elements."""
        ...


def contraction_bound(codec: Codec, num_features: int) -> float:
    """Return a bound of a codec's squared error, as a part of the square of the row.

    See [Note: Where the bounds come from].

    Args:
        codec: Of this package, or one with a method `contraction_bound(num_features)`, which is
            asked first.
        num_features: Elements of a row, F.

    Returns:
        The bound c; the codec contracts for certain where it is below 1.

    Raises:
        TypeError: Nothing is known of the codec. A subclass of one of ours may code in other ways,
            so it does not take over the bound.
        ValueError: `num_features` is not at least 1.
    """
    if type(num_features) is not int or num_features < 1:
        raise ValueError(
            f"contraction_bound: expected an int of at least 1 for 'num_features', got "
            f"{num_features!r}."
        )
    if isinstance(codec, HasContractionBound):
        return codec.contraction_bound(num_features)
    if type(codec) is FullPrecision:
        return 0.0
    if type(codec) is Half:
        return 2.0**-22 if codec.dtype == torch.float16 else 2.0**-16
    if type(codec) is Bits:
        return _minmax_bound(num_features, codec.bits)
    if type(codec) is OneBit:
        is_centroid = codec.code == "centroid"
        return _centroid_bound(num_features) if is_centroid else _minmax_bound(num_features, 1)
    raise TypeError(
        "contraction_bound: expected FullPrecision, Half, Bits or OneBit for 'codec', or a codec "
        f"with a method contraction_bound(num_features), got {codec!r}. Define the method: it "
        "returns a bound of the mean squared error of a row divided by the row's square."
    )


def _minmax_bound(num_features: int, bits: int) -> float:
    if num_features == 1:
        return 0.0
    half_step = (1 + 2.0**-7) ** 2 / (math.sqrt(2) * (2**bits - 1))
    return float(num_features * (half_step + 2.0**-20) ** 2)


def _centroid_bound(num_features: int) -> float:
    if num_features == 1:
        return 0.0
    if num_features > _MAX_CENTROID_FEATURES:
        return 1.0
    kept = num_features / (2 * (num_features**2 // 4))
    return 1 - kept * (1 - 2.0**-10)
