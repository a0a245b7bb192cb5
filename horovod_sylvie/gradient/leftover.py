"""What an earlier run of several ranks had pending, where one rank goes on alone.

One rank keeps no residuals: the pending update is added to the first gradient of the run.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from .checkpoint import ALL_RANKS
from .parameter import exchanged_parameters

_logger = logging.getLogger(__name__)


class Leftover:
    """A pending update that waits for a gradient; mostly empty."""

    def __init__(self) -> None:
        self._pending: dict[str, Tensor] = {}  # by parameter name; flat, in memory order

    def take(self, state: Mapping[str, Any]) -> None:
        """Keep what a saved state has pending, until a gradient comes.

        Args:
            state: From `consolidate_feedback`, or from `save_feedback` on a single rank. Of one
                rank of several it is not taken, and a warning says so.
        """
        self._pending = {}
        if state["rank"] != ALL_RANKS and state["num_ranks"] != 1:
            _logger.warning(
                "horovod_sylvie: one rank starts without residuals, because the checkpoint holds "
                "those of rank %d of %d. Save optimizer.consolidate().",
                state["rank"],
                state["num_ranks"],
            )
            return
        factor = state["num_ranks"] if state["op"] == "Sum" else 1
        for name, tensor in state["tensors"].items():
            kind, _, parameter = name.partition(".")
            if kind == "residual":
                self._pending[parameter] = tensor * factor

    def add_to_gradients(self, names: Mapping[Tensor, str]) -> None:
        """Add it to the gradients, and keep nothing. `names`: of all parameters."""
        pending, self._pending = self._pending, {}
        for parameter in exchanged_parameters(
            (name, tensor) for tensor, name in names.items() if name in pending
        ):
            gradient = parameter.gradient()
            residual = pending[parameter.name].to(parameter.tensor.device)
            parameter.store(residual if gradient is None else gradient.float() + residual)
