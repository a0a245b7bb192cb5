"""The deadline of every wait, from an argument or the environment."""

from __future__ import annotations

import os
from typing import Final

_DEFAULT_TIMEOUT_S: Final = 300.0


def checked_timeout(timeout_s: float | None) -> float:
    """Return the deadline of each wait, in seconds: `timeout_s`, HVS_TIMEOUT_S, or 300.

    Raises:
        ValueError: The deadline is not a positive number of seconds.
    """
    source = "timeout_s"
    value: float | str = _DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s
    if timeout_s is None and "HVS_TIMEOUT_S" in os.environ:
        source, value = "HVS_TIMEOUT_S", os.environ["HVS_TIMEOUT_S"]
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ValueError(
            f"HorovodCommunicator: expected a positive number of seconds for '{source}', "
            f"got {value!r}."
        )
    return seconds
