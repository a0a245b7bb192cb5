"""What selections met. Of CUDA tensors: whoever reads a number waits for the device.

Shapes: P shares, F of them filled.
"""

from __future__ import annotations

from functools import cached_property

from torch import Tensor


class SharesReport:
    """What one selection met.

    Args:
        values: For each share that is not empty, the bits of its threshold and how many sums were
            not finite. [F, 2], int64, on the device that selects
        num_shares: P.
    """

    def __init__(self, values: Tensor, num_shares: int) -> None:
        self._values = values
        self._num_shares = num_shares

    @cached_property
    def threshold_bits(self) -> tuple[int, ...]:
        """The smallest selected magnitude of each share, as the bits of a float32; 0 of none.

        The next call's `hints`. P entries
        """
        bits: list[int] = self._values[:, 0].tolist()
        return (*bits, *[0] * (self._num_shares - len(bits)))

    @cached_property
    def num_nonfinite(self) -> int:
        """How many elements would have become Inf or NaN, and kept their residual."""
        return int(self._values[:, 1].sum())

    @property
    def hints(self) -> tuple[int, ...]:
        """What the next call may take as its `hints` without waiting for a device. P entries."""
        if self._values.is_cpu:
            return self.threshold_bits
        return (0,) * self._num_shares


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


class SelectionsReport:
    """What many selections met.

    Args:
        values: That of the shares of all of them; see `SharesReport`. [F, 2]
        num_shares: P of each.
        num_filled: F of each.

    Attributes:
        each: What each met.
    """

    def __init__(self, values: Tensor, num_shares: list[int], num_filled: list[int]) -> None:
        self.each = tuple(
            SharesReport(part, count)
            for part, count in zip(values.split(num_filled), num_shares, strict=True)
        )
        self._values = values

    @property
    def num_nonfinite(self) -> Tensor:
        """How many elements would have become Inf or NaN, in all. [], int64; waits for nothing."""
        return self._values[:, 1].sum()
