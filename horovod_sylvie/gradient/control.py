"""What a wrapped optimizer does around its own step, apart from being a torch optimizer.

A step is *pending* from its first gradient to its synchronisation, and
*synchronized* from there to `step()`, to `zero_grad()` or to the next gradient.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from ..comm.protocol import Communicator
from .checkpoint import (
    STATE_KEY,
    check_feedback,
    consolidate_feedback,
    load_feedback,
    rescale_feedback,
    save_feedback,
)
from .closure import synchronized_closure
from .gradient_exchange import GradientExchange
from .leftover import Leftover
from .momentum import MomentumOptions
from .outcome import Outcome
from .parameter import exchanged_parameters
from .telemetry import Telemetry, report

_logger = logging.getLogger(__name__)


class OptimizerControl:
    """Drives the exchange of one wrapped optimizer.

    Args:
        exchange: What it drives; None where this rank takes no part in the exchange.
        named: Name and parameter.
        passes: Backward passes per step.
        clip_local: Clips the gradient where there is no exchange that does.
        renew: Returns the communicator to use from now on: the one it is given, or another one
            where Horovod was initialised again with other ranks.
    """

    def __init__(
        self,
        exchange: GradientExchange | None,
        *,
        named: Sequence[tuple[str, Tensor]],
        passes: int,
        clip_local: Callable[[], None],
        renew: Callable[[Communicator, bool], Communicator],
    ) -> None:
        self.exchange = exchange
        self._passes = passes
        self._tensors = {tensor: name for name, tensor in named}
        self._clip_local = clip_local
        self._renew = renew
        self._synchronized = False
        self._by_scaler = False
        self._skip = False
        self._overflow = False
        self._leftover = Leftover()

    @property
    def passes(self) -> int:
        """Backward passes per step."""
        return self._passes

    @passes.setter
    def passes(self, passes: int) -> None:
        if self.exchange is not None:
            if self.exchange.is_pending:
                raise RuntimeError(
                    "set_backward_passes_per_step: expected no gradients that await step(), got "
                    "some. Call step() first."
                )
            self.exchange.arrivals.passes = passes
        self._passes = passes

    def synchronize(self, *, by_scaler: bool = False) -> None:
        """Exchange gradients, once for each step."""
        if self._is_synchronized():
            return
        if self.exchange is None:
            self._leftover.add_to_gradients(self._tensors)
            self._clip_local()
        else:
            self._use_ranks()
            self._overflow = self.exchange.synchronize().overflow
        self._synchronized = True
        self._by_scaler = by_scaler

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Let `step()` take the gradients as they are."""
        self._skip = True
        try:
            yield
        finally:
            self._skip = False

    def step(self, local_step: Callable[..., Any], closure: Callable[[], Any] | None) -> Any:
        """Synchronise where that was not done, and take the optimizer's own step."""
        if closure is not None and not self._skip:
            result = local_step(synchronized_closure(closure, self.synchronize, self.exchange))
        elif closure is not None:
            result = local_step(closure)
        else:
            if not self._skip:
                self._warn_if_synchronized()
                self.synchronize()
            # A GradScaler that is passed skips by itself; this is for a step without it
            result = None if self._overflow else local_step()
        self._synchronized = False
        self._overflow = False
        return result

    def before_scaler_step(self) -> None:
        """Refuse to let a GradScaler unscale gradients that are being exchanged."""
        exchange = self.exchange
        if exchange is None or exchange.options.scaler is not None:
            return
        # Residuals would be in the unit of one scale, and added to gradients of another
        if exchange.is_pending or exchange.options.sparse is not None:
            raise RuntimeError(
                "GradScaler.step: expected a scaler that the optimizer knows. Gradients that are "
                "being exchanged cannot be unscaled, an overflow would stop this rank alone, and "
                "residuals would keep the scale. Pass it: DistributedOptimizer(..., scaler=scaler)."
            )

    def before_zero_grad(self) -> None:
        """Refuse to clear gradients that are being exchanged."""
        if self.exchange is not None and self.exchange.is_pending:
            # The type and the text are Horovod's: programs and tests know them
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before "
                "optimizer.step() or optimizer.synchronize(). This is prohibited as it can cause "
                "a race condition. Where a GradScaler skipped the step, pass it: "
                "DistributedOptimizer(..., scaler=scaler)."
            )
        self._synchronized = False
        self._overflow = False

    def join(self, step: Callable[[], Any], follow: Callable[..., None]) -> int:
        """Take part in the others' steps, without batches, until no rank has any.

        Args:
            step: Steps the wrapped optimizer.
            follow: Takes over the hyperparameters of a rank that has batches.
        """
        exchange = self.exchange
        if exchange is None:
            return 0
        if not exchange.options.uneven_batches:
            raise RuntimeError(
                "join: expected an optimizer that was made with uneven_batches=True. Ranks must "
                "know before the first step that some may run out of batches: "
                "DistributedOptimizer(..., uneven_batches=True)."
            )
        if exchange.is_pending:
            raise RuntimeError(
                "join: expected no gradients that await step(). Call step() first, then join()."
            )
        self._use_ranks()
        while True:
            outcome: Outcome = exchange.synchronize(joined=True)
            if not any(outcome.active):
                return exchange.last_active
            if not outcome.overflow:
                follow(outcome.hyperparameters)
            self._synchronized, self._by_scaler, self._overflow = True, True, outcome.overflow
            step()

    def before_add_param_group(self) -> None:
        """Refuse a group whose momentum would stay in the optimizer while the others' does not."""
        if self.exchange is not None and self.exchange.options.momentum:
            raise ValueError(
                "add_param_group: expected momentum='post', got momentum='dgc', which takes the "
                "momentum of all groups when it wraps the optimizer. Make a new optimizer with all "
                "groups and wrap that."
            )

    def exchange_more(self, param_groups: list[dict[str, Any]]) -> None:
        """Exchange the parameters of the last group too."""
        place = len(param_groups) - 1
        new = [
            (f"allreduce.noname.{place}.{number}", tensor)
            for number, tensor in enumerate(param_groups[-1]["params"])
        ]
        try:
            if self.exchange is not None:
                self.exchange.add(exchanged_parameters(new))
        except TypeError:
            param_groups.pop()  # refused: it would never be exchanged
            raise
        self._tensors |= {tensor: name for name, tensor in new}

    @property
    def taken_momentum(self) -> Mapping[int, MomentumOptions]:
        """What momentum correction took from the optimizer, by parameter id."""
        return {} if self.exchange is None else self.exchange.options.momentum

    def names(self) -> dict[Tensor, str]:
        """Return the name of each parameter."""
        return dict(self._tensors)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold beside the optimizer's own state; mostly nothing."""
        exchange = self.exchange
        if exchange is None or not (exchange.factory.feedback or exchange.factory.momentum):
            return {}
        return {STATE_KEY: save_feedback(exchange)}

    def consolidated_state(self) -> dict[str, Any]:
        """Return the same with one residual for all ranks. Collective."""
        exchange = self.exchange
        if exchange is None or not self.state():
            return {}
        self._use_ranks()
        return {STATE_KEY: consolidate_feedback(exchange)}

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise a ValueError unless `load_state` can take over all of it."""
        if self.exchange is not None and STATE_KEY in state:
            self.exchange.drop_step()
            check_feedback(self.exchange, state[STATE_KEY])

    def load_state(self, state: Mapping[str, Any], param_groups: Sequence[dict[str, Any]]) -> None:
        """Take over what `state` returned; what is in flight is forgotten.

        Args:
            state: What was loaded.
            param_groups: As just loaded; with momentum correction they keep none.
        """
        saved = state.get(STATE_KEY)
        exchange = self.exchange
        if exchange is not None:
            exchange.drop_step()
            if exchange.options.momentum or exchange.options.lags is not None:
                exchange.forget_agreement()  # rank 0's velocities and its plan are shared again
            if exchange.options.momentum:
                for group in param_groups:
                    group["momentum"], group["weight_decay"] = 0.0, 0.0
            if saved is not None:
                load_feedback(exchange, saved)
        if saved is None and self.state():
            _logger.warning(
                "horovod_sylvie: the loaded state has no residuals; they stay as they are"
            )
        if saved is not None and exchange is None:
            self._leftover.take(saved)
        self._synchronized = False
        self._overflow = False

    def telemetry(self) -> Telemetry:
        """Report what the exchange costs."""
        exchange = self.exchange
        if exchange is None:
            return report([], {})
        return report(exchange.exchanges, exchange.samples, exchange.adaptive)

    def go_back(self) -> None:
        """Let the next `load_state` set the step too: all ranks load, and agree again."""
        if self.exchange is not None:
            self.exchange.forget_agreement()

    def use_new_ranks(self) -> None:
        """Go on after Horovod was initialised again; what a rank had pending stays pending."""
        self._use_ranks(renewed=True)
        self._synchronized = False
        self._overflow = False

    def _use_ranks(self, *, renewed: bool = False) -> None:
        """Use the present ranks. `renewed`: they are new, even if there are as many."""
        exchange = self.exchange
        if exchange is not None:
            before, comm = exchange.comm, self._renew(exchange.comm, renewed)
            if comm is not before:
                exchange.use_communicator(comm)
                rescale_feedback(exchange, before.size)

    def _is_synchronized(self) -> bool:
        pending = self.exchange is not None and self.exchange.is_pending
        return self._synchronized and not pending

    def _warn_if_synchronized(self) -> None:
        if self._is_synchronized() and not self._by_scaler:
            # Horovod's words; unlike there, gradients are not exchanged a second time
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() context after "
                "optimizer.synchronize(). This can cause training slowdown. You may want to "
                "consider using optimizer.skip_synchronize() context if you use "
                "optimizer.synchronize() in your code.",
                stacklevel=4,
            )
