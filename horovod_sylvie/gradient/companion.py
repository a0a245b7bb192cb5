"""Other traffic that a wrapped optimizer owns beside its gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

COMPANION_KEY: Final = "horovod_sylvie.halo"


class Companion(Protocol):
    """What an optimizer does to it: it ends with each step, and is saved with the optimizer."""

    def end_epoch(self) -> None:
        """End a step."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold."""
        ...

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise a ValueError unless `load_state_dict` can take over all of it."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        ...

    def report(self) -> dict[str, float]:
        """Return what it has cost since the start, by name."""
        ...
