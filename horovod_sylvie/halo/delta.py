"""The option to send changes: what a row differs by from the receiver's last copy of it.

In full-graph training every row is sent anew in every epoch, and differs little from the row of the
epoch before. Both ends keep the row as the receiver has it; the sender encodes the difference, and
both add what the bytes decode to. The code's error is part of the next difference, so it is not
lost but sent later, and where rows come to rest, the copies come to equal them.

That holds only for codecs whose error is smaller than what they encode; see
`horovod_sylvie.halo.contraction`. How fast, depends. Of normal rows of 64 features that stand
still, 59 %, 8 %, 0.6 % and 0.03 % are missing after 1, 10, 50 and 100 changes with one bit, as far
elements are left at last; with four bits nothing after 10, as far as float32 can tell.
`delta_format.py` has the state and the messages.

Source: Wang et al., "Fine-tuning Language Models over Slow Networks using Activation Compression
with Guarantees" (AQ-SGD, NeurIPS 2022), for activations between stages of a pipeline. Ours differs
in the codecs, and in the refreshes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .codec import Codec, Half
from .contraction import contraction_bound
from .packed_codec import Bits, OneBit

_TYPICAL_FEATURES: Final = 64
_CURES: Final[tuple[Codec, ...]] = (OneBit("centroid"), Bits(4), Bits(8), Half())


@dataclass(frozen=True)
class Delta:
    """Features travel as changes against the receiver's last copy, by a codec.

    Costs memory: a copy of every distinct row sent and of every row received, for each layer, in
    float32 (float64 for rows of float64).

    Attributes:
        codec: How changes are encoded, such as `OneBit("centroid")`, `Bits(4)` or `Bits(8)`. Its
            error must be smaller than the change, for sure: `OneBit("minmax")`, `Bits(1)` and
            `Bits(2)` are refused.
        refresh_every: Every so many exchanges of a layer, rows travel in full precision and both
            ends start anew from them, so that damage which no check noticed does not stay. Adds
            `32 / refresh_every` bits per element of float32 to the mean; 1 sends no changes.
    """

    codec: Codec
    refresh_every: int = 50

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            TypeError: `codec` is no `Codec`, or nothing is known of its error.
            ValueError: `codec` may enlarge rows of 64 features, or `refresh_every` is not at
                least 1.
        """
        if not isinstance(self.codec, Codec):
            raise TypeError(
                "Delta: expected a Codec, such as OneBit('centroid'), for 'codec', got "
                f"{self.codec!r}."
            )
        if type(self.refresh_every) is not int or self.refresh_every < 1:
            raise ValueError(
                "Delta: expected an int of at least 1 for 'refresh_every', got "
                f"{self.refresh_every!r}."
            )
        self.check(_TYPICAL_FEATURES)

    def check(self, num_features: int) -> None:
        """Raise unless the codec contracts rows of a width.

        Args:
            num_features: Elements of a row, F.

        Raises:
            ValueError: It may not.
        """
        bound = contraction_bound(self.codec, num_features)
        if not bound < 1:
            cures = [cure for cure in _CURES if contraction_bound(cure, num_features) < 1]
            raise ValueError(
                "Delta: expected a codec whose error is smaller than what it encodes for 'codec', "
                f"got {self.codec!r}: for {num_features} features, its squared error can be "
                f"{bound:.3g} times the square of a change. The error of the copies would grow "
                "from step to step instead of shrinking: it diverges. Use "
                f"{' or '.join(map(repr, cures))}."
            )

    def for_gradients(self) -> Codec:
        """Return the codec for the backward direction: the inner codec's, for gradients as such.

        Gradients do not travel as changes. They are not read anew but summed over time, in weights
        and in the optimizer's state, where unbiased errors cancel out and those of changes, which
        follow from each other, do not. And they do not resemble those of the step before.
        """
        return self.codec.for_gradients()
