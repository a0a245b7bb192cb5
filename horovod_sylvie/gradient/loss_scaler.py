"""A GradScaler that lets the exchange end before it unscales, and is asked for its scale once.

`scaler.step` unscales the gradients of the optimizer that it is given, and looks for Inf in them.
They must be those of all ranks by then, or ranks would skip steps alone.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any


class StepScale:
    """The scale of a step's gradients, read once: on a GPU each reading waits for the device.

    Args:
        read: Reads the scale. A scaler changes it between steps only.
    """

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read
        self._scale: float | None = None

    def get(self) -> float:
        """Return the scale of this step."""
        if self._scale is None:
            self._scale = self._read()
        return self._scale

    def end_step(self) -> None:
        """Read it again when it is needed next."""
        self._scale = None


class SynchronizedUnscale:
    """Takes the place of a scaler's `unscale_`; a copy of the scaler gets the plain one again.

    Args:
        scaler: The scaler.
        optimizer: A wrapped optimizer; not kept alive.
    """

    def __init__(self, scaler: Any, optimizer: Any) -> None:
        self._scaler = weakref.ref(scaler)
        self._optimizer = weakref.ref(optimizer)
        self._before = vars(scaler).get("unscale_")  # of another optimizer, for the same scaler

    def __call__(self, target: Any) -> None:
        """Unscale the gradients of `target`, after their exchange."""
        optimizer = self._optimizer()
        if optimizer is not None and target is optimizer:
            optimizer._hvs_control.synchronize(by_scaler=True)
        scaler = self._scaler()
        if self._before is not None:
            self._before(target)
        elif scaler is not None:
            type(scaler).unscale_(scaler, target)

    def __reduce__(self) -> tuple[Any, ...]:
        return _plain_unscale, (self._scaler(),)


def synchronize_before_unscaling(scaler: Any, optimizer: Any) -> None:
    """Make `scaler.unscale_`, which `scaler.step` calls, see the gradients of all ranks.

    Args:
        scaler: A `torch.amp.GradScaler`.
        optimizer: What `DistributedOptimizer` returns.
    """
    scaler.unscale_ = SynchronizedUnscale(scaler, optimizer)


def _plain_unscale(scaler: Any) -> Any:
    return types.MethodType(type(scaler).unscale_, scaler)
