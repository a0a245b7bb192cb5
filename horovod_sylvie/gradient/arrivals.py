"""Which gradients of a step are there: the hooks, and the count of backward passes.

Hooks hold no reference to what they serve: an optimizer that is dropped leaves hooks behind that
do nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

from torch import Tensor

from .parameter import ExchangedParameter


class Arrivals:
    """Counts each parameter's gradients, and says when one is complete.

    Args:
        passes: Backward passes that make a gradient complete.
        on_complete: A method, called in backward with the parameter whose gradient is complete.
            Held weakly: what is dropped must go at once, for its hooks would act until the next
            garbage collection.
    """

    def __init__(self, passes: int, on_complete: Callable[[ExchangedParameter], None]) -> None:
        self._passes = passes
        self._on_complete = weakref.WeakMethod(on_complete)
        self._parameters: list[ExchangedParameter] = []
        self._missing: dict[int, int] = {}
        self._handed_over: dict[int, tuple[Tensor, int]] = {}
        self.any_since_reset = False

    @property
    def passes(self) -> int:
        """Backward passes that make a gradient complete."""
        return self._passes

    @passes.setter
    def passes(self, passes: int) -> None:
        self._passes = passes
        self.reset()

    def watch(self, parameters: Iterable[ExchangedParameter]) -> None:
        """Register the hook of each parameter; they must require gradients."""
        own = weakref.ref(self)
        for parameter in parameters:
            self._parameters.append(parameter)
            self._missing[id(parameter)] = self._passes

            def hook(_: Tensor, parameter: ExchangedParameter = parameter) -> None:
                arrivals = own()
                if arrivals is not None:
                    arrivals._arrive(parameter)

            parameter.tensor.register_post_accumulate_grad_hook(hook)

    def reset(self) -> None:
        """Begin a step: no gradient is there."""
        self._handed_over.clear()
        self.any_since_reset = False
        for parameter in self._parameters:
            self._missing[id(parameter)] = self._passes

    def hand_over(self, parameter: ExchangedParameter) -> None:
        """Remember a gradient that is being exchanged; nobody may change it from here on."""
        grad = parameter.tensor.grad
        if grad is not None:
            self._handed_over[id(parameter)] = (grad, grad._version)

    def changed(self) -> list[str]:
        """Return the names of the gradients that were changed while they were exchanged."""
        return [
            parameter.name
            for parameter in self._parameters
            if self._is_changed(parameter.tensor.grad, self._handed_over.get(id(parameter)))
        ]

    def raise_if_changed(self, rank: int) -> None:
        """Raise a RuntimeError, with the recipe, if a gradient was changed in flight."""
        changed = self.changed()
        if changed:
            raise RuntimeError(
                f"rank {rank}: the gradients of {', '.join(changed[:3])}"
                f"{' and others' if len(changed) > 3 else ''} were changed after backward, while "
                "they were exchanged. Before you clip or unscale gradients call "
                "optimizer.synchronize(), and then step() inside `with "
                "optimizer.skip_synchronize():`. With a GradScaler it is enough to pass it: "
                "DistributedOptimizer(..., scaler=scaler)."
            )

    @staticmethod
    def _is_changed(now: Tensor | None, before: tuple[Tensor, int] | None) -> bool:
        return before is not None and (now is not before[0] or now._version != before[1])

    def _arrive(self, parameter: ExchangedParameter) -> None:
        missing = self._missing[id(parameter)]
        if missing == 0:
            # The type and the first words are Horovod's: programs and tests know them
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to "
                f"step(): '{parameter.name}' has {self._passes}. Increase backward_passes_per_step "
                "to accumulate gradients locally, or call step() or synchronize() in between."
            )
        self.any_since_reset = True
        self._missing[id(parameter)] = missing - 1
        on_complete = self._on_complete()
        if missing == 1 and on_complete is not None:
            on_complete(parameter)
