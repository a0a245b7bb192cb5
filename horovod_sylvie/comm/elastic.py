"""Horovod Elastic: how a `TorchState` keeps an optimizer of ours over a change of ranks."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from .horovod_build import require_horovod


def register_elastic_handler(
    optimizer_type: type[Any],
    use_new_ranks: Callable[[Any], None],
    before_restore: Callable[[Any], None],
) -> None:
    """Let `hvd.elastic.TorchState` handle optimizers of a type as their owner asks.

    Horovod's handler broadcasts rank 0's state and knows nothing of residuals, which are each
    rank's own, nor of communicators made for the old ranks. Registering twice changes nothing.

    Args:
        optimizer_type: The type; a subclass of it is meant too.
        use_new_ranks: Called on every rank, with the optimizer, once Horovod runs with the new
            ranks and before rank 0's state is broadcast. Collective.
        before_restore: Called with the optimizer, before it loads what was committed last.
    """
    require_horovod()
    elastic = importlib.import_module("horovod.torch.elastic.state")
    registry = elastic.get_handler_registry()
    if any(known is optimizer_type for known, _ in registry):
        return

    class Handler(elastic.OptimizerStateHandler):  # type: ignore[misc, name-defined]
        def restore(self) -> None:
            before_restore(self.value)
            super().restore()

        def sync(self) -> None:
            use_new_ranks(self.value)
            weights = [each for group in self.value.param_groups for each in group["params"]]
            before = [each.detach().clone() for each in weights]
            super().sync()
            # A new rank has no state: there Horovod took a step, to make one, and the other ranks
            # did not; weight decay, if nothing else, moves the weights by that
            for weight, value in zip(weights, before, strict=True):
                weight.detach().copy_(value)
            # What is saved is what a later failure goes back to
            self.save()

    elastic.set_handler_registry([(optimizer_type, Handler), *registry])
