"""What selections met. Of CUDA tensors: whoever reads a number waits for the device.

Shapes: P shares, F of them filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

from torch import Tensor


class SelectionsReport:
    """What many selections met.

    Args:
        values: For each share that is not empty, of one selection after the other, the bits of its
            threshold and how many sums were not finite. [F, 2], int64, on the device that selects
        num_shares: P of each selection.
        num_filled: F of each selection.

    Attributes:
        each: What each met.
    """

    def __init__(
        self, values: Tensor, num_shares: Sequence[int], num_filled: Sequence[int]
    ) -> None:
        self._values = values
        ends = accumulate(num_filled)
        self.each = tuple(
            SharesReport(self, end - filled, end, count)
            for end, filled, count in zip(ends, num_filled, num_shares, strict=True)
        )

    @property
    def is_at_hand(self) -> bool:
        """Whether numbers can be read without waiting for a device."""
        return self._values.is_cpu

    @property
    def num_nonfinite(self) -> int | Tensor:
        """How many elements would have become Inf or NaN, in all.

        A number where that is at hand, else on the device: [], int64.
        """
        if self.is_at_hand:
            return sum(each.num_nonfinite for each in self.each)
        return self._values[:, 1].sum()

    @cached_property
    def numbers(self) -> list[list[int]]:
        """The values; waits for the device."""
        read: list[list[int]] = self._values.tolist()
        return read


class SharesReport:
    """What one selection met.

    Args:
        all_selections: What this one and others met.
        begin: Of its values there.
        end: Of its values there.
        num_shares: P.
    """

    def __init__(
        self, all_selections: SelectionsReport, begin: int, end: int, num_shares: int
    ) -> None:
        self._all = all_selections
        self._begin = begin
        self._end = end
        self._num_shares = num_shares

    @property
    def threshold_bits(self) -> tuple[int, ...]:
        """The smallest selected magnitude of each share, as the bits of a float32; 0 of none.

        The next call's `hints`. P entries
        """
        bits = [bits for bits, _ in self._all.numbers[self._begin : self._end]]
        return (*bits, *[0] * (self._num_shares - len(bits)))

    @property
    def num_nonfinite(self) -> int:
        """How many elements would have become Inf or NaN, and kept their residual."""
        return sum(count for _, count in self._all.numbers[self._begin : self._end])

    @property
    def hints(self) -> tuple[int, ...]:
        """What the next call may take as its `hints` without waiting for a device. P entries."""
        return self.threshold_bits if self._all.is_at_hand else (0,) * self._num_shares


class SelectReport:
    """What `select_top_k` met: that of one share, which is the whole."""

    def __init__(self, report: SharesReport) -> None:
        self._report = report

    @property
    def threshold_bits(self) -> int:
        """The smallest selected magnitude, as the bits of a float32: the next call's `hint`."""
        return self._report.threshold_bits[0]

    @property
    def num_nonfinite(self) -> int:
        """How many elements would have become Inf or NaN, and kept their residual."""
        return self._report.num_nonfinite
