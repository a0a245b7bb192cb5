"""Does compression pay on this link? Try both, and keep the faster.

Quantising takes time, and on a fast link it takes more than it saves. What an epoch takes depends
on the link, on the cores and on what else runs there, so it is measured: some epochs of training
in full precision, some with the codec. Both kinds train the model, the first more exactly.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from .codec import Codec, FullPrecision


@dataclass(frozen=True)
class Automatic:
    """A codec where it makes epochs shorter, else full precision; measured in the first epochs.

    Attributes:
        codec: What is tried against `FullPrecision`.
        epochs_each: Epochs measured with each, after one that is not: at least 1. The median
            counts, summed over ranks.
    """

    codec: Codec
    epochs_each: int = 3

    def __post_init__(self) -> None:
        """Check the options."""
        if not isinstance(self.codec, Codec) or isinstance(self.codec, FullPrecision):
            raise TypeError(
                "Automatic: expected a Codec other than FullPrecision, such as OneBit(), for "
                f"'codec', got {self.codec!r}."
            )
        if type(self.epochs_each) is not int or self.epochs_each < 1:
            raise ValueError(
                "Automatic: expected a number of epochs from 1 for 'epochs_each', got "
                f"{self.epochs_each!r}."
            )


@dataclass(frozen=True)
class Trial:
    """Where the measurement stands. Immutable: each epoch gives the next.

    Epochs come in two blocks, full precision first. The first of each block is not measured: it
    computes, or waits, with what was sent in the other form. Nor is the very first, in which much
    is set up.

    Attributes:
        options: What is tried.
        times_s: What the measured epochs took here, in order.
        num_epochs: Epochs seen.
        chosen: The outcome, once there is one: whether the codec is used.
    """

    options: Automatic
    times_s: tuple[float, ...] = ()
    num_epochs: int = 0
    chosen: bool | None = None

    @property
    def uses_codec(self) -> bool:
        """Whether the next epoch's rows travel by the codec."""
        if self.chosen is not None:
            return self.chosen
        return self.num_epochs >= self.options.epochs_each + 2

    @property
    def is_complete(self) -> bool:
        """Whether everything was measured, and nothing chosen yet."""
        return self.chosen is None and len(self.times_s) == 2 * self.options.epochs_each

    @property
    def medians_s(self) -> tuple[float, float]:
        """Median seconds of an epoch here: in full precision, and with the codec."""
        each = self.options.epochs_each
        return statistics.median(self.times_s[:each]), statistics.median(self.times_s[each:])

    def after(self, epoch_s: float) -> Trial:
        """Return the trial after one more epoch.

        Args:
            epoch_s: What it took on this rank, in seconds.
        """
        if self.chosen is not None or self.is_complete:
            return self
        number, each = self.num_epochs, self.options.epochs_each
        measured = number not in (0, 1, each + 2)
        times_s = (*self.times_s, epoch_s) if measured else self.times_s
        return replace(self, times_s=times_s, num_epochs=number + 1)

    def decided(self, full_s: float, codec_s: float) -> Trial:
        """Return the trial with its outcome.

        Args:
            full_s: What an epoch takes in full precision, the same number on every rank.
            codec_s: With the codec.
        """
        return replace(self, chosen=codec_s < full_s)
