"""What selections met. Of CUDA tensors: whoever reads a number waits for the device.

Shapes: P shares, F of them filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from torch import Tensor


class SelectValues:
    """The numbers that selections left, read once.

    Args:
        tensor: For each share that is not empty, of one selection after the other, the bits of its
            threshold and how many sums were not finite. [F, 2], int64, on the device that selects
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self._numbers: list[list[int]] | None = None

    @property
    def is_at_hand(self) -> bool:
        """Whether numbers can be read without waiting for a device."""
        return self.tensor.is_cpu

    @property
    def numbers(self) -> list[list[int]]:
        """The values; waits for the device."""
        if self._numbers is None:
            self._numbers = self.tensor.tolist()
        return self._numbers


class SelectionsReport:
    """What many selections met.

    Args:
        values: What they left.
        num_shares: P of each selection.
        num_filled: F of each selection.

    Attributes:
        each: What each met.
    """

    def __init__(
        self, values: SelectValues, num_shares: Sequence[int], num_filled: Sequence[int]
    ) -> None:
        self._values = values
        ends = accumulate(num_filled)
        self.each = tuple(
            SharesReport(values, end - filled, end, count)
            for end, filled, count in zip(ends, num_filled, num_shares, strict=True)
        )

    @property
    def num_nonfinite(self) -> int | Tensor:
        """How many elements would have become Inf or NaN, in all.

        A number where that is at hand, else on the device: [], int64.
        """
        if self._values.is_at_hand:
            return sum(count for _, count in self._values.numbers)
        return self._values.tensor[:, 1].sum()


class SharesReport:
    """What one selection met.

    Args:
        values: What this one and others left.
        begin: Of its values there.
        end: Of its values there.
        num_shares: P.
    """

    def __init__(self, values: SelectValues, begin: int, end: int, num_shares: int) -> None:
        self._values = values
        self._begin = begin
        self._end = end
        self._num_shares = num_shares

    @property
    def threshold_bits(self) -> tuple[int, ...]:
        """The smallest selected magnitude of each share, as the bits of a float32; 0 of none.

        The next call's `hints`. P entries
        """
        bits = [bits for bits, _ in self._values.numbers[self._begin : self._end]]
        return (*bits, *[0] * (self._num_shares - len(bits)))

    @property
    def num_nonfinite(self) -> int:
        """How many elements would have become Inf or NaN, and kept their residual."""
        return sum(count for _, count in self._values.numbers[self._begin : self._end])

    @property
    def hints(self) -> tuple[int, ...]:
        """What the next call may take as its `hints` without waiting for a device. P entries."""
        return self.threshold_bits if self._values.is_at_hand else (0,) * self._num_shares


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

    @property
    def hint(self) -> int:
        """What the next call may take as its `hint` without waiting for a device."""
        return self._report.hints[0]
