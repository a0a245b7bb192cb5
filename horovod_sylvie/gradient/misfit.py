"""Whether steps take longer than a plan's model says because the link is another one.

Steps may also take longer because the model is off: ranks that share cores slow each other down,
for instance. No calibration of the link mends that, and one takes as long as several steps. So what
is still off after a calibration is taken for granted, up to a limit.
"""

from __future__ import annotations

from typing import Final

_WRONG: Final = 1.25  # so many times longer than usual steps take where something has changed
_MOST_USUAL: Final = 2.0  # a calibration that leaves more than that open has missed a change


class Misfit:
    """Compares measured steps with predicted ones, from decision to decision.

    The same on every rank that is told the same.
    """

    def __init__(self) -> None:
        self._usual = 1.0
        self._is_calibrated = True

    def forget(self) -> None:
        """Note that the link was calibrated anew."""
        self._is_calibrated = True

    def is_wrong(self, measured_s: float, predicted_s: float) -> bool:
        """Return whether the link should be calibrated anew.

        Args:
            measured_s: Seconds of a step since the last decision; 0 if not known.
            predicted_s: Seconds that the model said then; 0 if it said nothing.
        """
        if not (measured_s > 0 and predicted_s > 0):
            return False
        ratio = max(1.0, measured_s / predicted_s)
        if self._is_calibrated:
            self._usual, self._is_calibrated = min(ratio, _MOST_USUAL), False
        if ratio > _WRONG * self._usual:
            return True
        self._usual = min(self._usual, ratio)
        return False
