"""What the row ops met, read from the device when somebody asks.

A kernel notes what it meets in four int64 of the device that it runs on, all -1 at first
(cpp/row_report.hpp):

====== ==============================================================================
number meaning
====== ==============================================================================
0      first position of the index that is out of range; nothing else was done then
1      position of the first corrupt row
2      position of the first row that is not finite
3      -1 minus the number of rows that are not finite
====== ==============================================================================
"""

from __future__ import annotations

import torch
from torch import Tensor


def open_report(device: torch.device) -> Tensor:
    """Return the numbers of a report in which nothing is noted. [4], int64."""
    return torch.full((4,), -1, dtype=torch.int64, device=device)


class RowReport:
    """What `pack_rows` or `unpack_rows` met.

    Reading a number of it, or `check`, raises what the op found wrong. On a GPU that waits for the
    op, as the op itself does not; `found_any` does not wait, and raises nothing.

    Args:
        function: The op, for messages.
        array: Name of the argument whose rows the index chooses.
        num_rows: How many rows that has.
        index: Which rows; must stay as it is until the report was read. None for all.
        bits: Bits per element.
        numbers: See the module's table. [4], int64
    """

    def __init__(
        self,
        function: str,
        array: str,
        num_rows: int,
        index: Tensor | None,
        bits: int,
        numbers: Tensor,
    ) -> None:
        self._function = function
        self._array = array
        self._num_rows = num_rows
        self._index = index
        self._bits = bits
        self._numbers = numbers
        self._checked: tuple[int, int] | None = None

    @property
    def found_any(self) -> Tensor:
        """Whether a row is not finite or anything is wrong, on the rows' device. [], bool."""
        return (self._numbers != -1).any()

    @property
    def num_nonfinite(self) -> int:
        """How many rows have an Inf or a NaN, or a spread beyond bf16."""
        return self._read()[0]

    @property
    def first_nonfinite_row(self) -> int:
        """The first of them, as a row of what the index chooses from; -1 if there is none."""
        return self._read()[1]

    def check(self) -> None:
        """Raise what is wrong.

        Raises:
            IndexError: The index has a number out of range; nothing was written.
            ValueError: A row is corrupt; it was left as it was in the output.
        """
        self._read()

    def _read(self) -> tuple[int, int]:
        """Return how many rows are not finite, and the first, once the numbers were checked."""
        if self._checked is None:
            self._checked = self._check_numbers()
        return self._checked

    def _check_numbers(self) -> tuple[int, int]:
        bad_position, corrupt_position, nonfinite_position, countdown = self._numbers.tolist()
        if bad_position >= 0:
            msg = (
                f"{self._function}: expected row numbers in [0, {self._num_rows}) for 'index', got "
                f"{self._row_at(bad_position)} at position {bad_position}. '{self._array}' has "
                f"{self._num_rows} rows."
            )
            raise IndexError(msg)
        if corrupt_position >= 0:
            msg = (
                f"{self._function}: expected rows that pack_rows wrote with {self._bits} bits for "
                f"'{self._array}', got a corrupt row {self._row_at(corrupt_position)} of "
                f"{self._num_rows}. Check that sender and receiver agree on features, bits and the "
                "order of rows."
            )
            raise ValueError(msg)
        return -1 - countdown, self._row_at(nonfinite_position)

    def _row_at(self, position: int) -> int:
        return position if self._index is None or position < 0 else int(self._index[position])
