"""The class of a wrapped optimizer: the user's own class, with the exchange in front of its step.

The wrapped optimizer is kept and every attribute is read from it and written to it, so state that
it already has, its defaults, its hooks and schedulers made for it stay what they were. The class
is made for each user's class, exactly one level above it, and carries Horovod's module name:
`hvd.broadcast_optimizer_state` looks at both, and deadlocks otherwise.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final, NoReturn

import torch
from torch import Tensor

from .checkpoint import STATE_KEY
from .companion import COMPANION_KEY, Companion
from .control import OptimizerControl
from .hyperparameters import write_numbers
from .momentum import hide_momentum, show_momentum
from .telemetry import Telemetry

_logger = logging.getLogger(__name__)

_OWN: Final = frozenset({"_hvs_inner", "_hvs_control", "_hvs_companion"})
_OF_THE_INNER: Final = frozenset({"state", "defaults", "param_groups"})


class WrappedOptimizer:
    """What `hvs.DistributedOptimizer` returns is an instance of this, and of the user's class."""

    _hvs_inner: torch.optim.Optimizer
    _hvs_control: OptimizerControl
    _hvs_companion: Companion | None

    def synchronize(self) -> None:
        """Wait for the exchange of all gradients; `grad` is the reduced gradient from then on."""
        self._hvs_control.synchronize()

    def skip_synchronize(self) -> AbstractContextManager[None]:
        """Return a context in which `step()` takes the gradients as they are."""
        return self._hvs_control.skip_synchronize()

    def consolidate(self) -> dict[str, Any]:
        """Return a state dict for any number of ranks, with what all ranks have pending.

        Returns:
            `state_dict()` with the residuals' mean (with op Sum, their sum is shared out when it
            is loaded). The same on every rank.

        Note:
            Collective: all ranks call, between two steps.
        """
        return self._inner_state() | self._hvs_control.consolidated_state() | self._beside()

    def _inner_state(self) -> dict[str, Any]:
        """Return the inner optimizer's state, its momentum where a plain optimizer has it."""
        groups = self._hvs_inner.param_groups
        saved = self._hvs_inner.state_dict()
        show_momentum(saved["param_groups"], groups, self._hvs_control.taken_momentum)
        return saved

    def _beside(self) -> dict[str, Any]:
        """Return what the state holds of other traffic; mostly nothing."""
        companion = self._hvs_companion
        return {} if companion is None else {COMPANION_KEY: companion.state_dict()}

    def telemetry(self) -> Telemetry:
        """Return what the exchange has cost, and what it keeps."""
        telemetry = self._hvs_control.telemetry()
        companion = self._hvs_companion
        return telemetry if companion is None else replace(telemetry, beside=companion.report())

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Change how many backward passes make a step."""
        check_passes("set_backward_passes_per_step", passes)
        self._hvs_control.passes = passes

    @property
    def backward_passes_per_step(self) -> int:
        """How many backward passes make a step."""
        return self._hvs_control.passes

    @property
    def _parameter_names(self) -> dict[Tensor, str]:
        """Return the names of exchanged parameters; Horovod's own tests read this."""
        return self._hvs_control.names()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__}: a DistributedOptimizer cannot be pickled or deep-copied: its "
            "hooks are on the parameters of this process. Save optimizer.state_dict(), and wrap "
            "the optimizer again after loading."
        )


def check_passes(function: str, passes: object) -> None:
    """Raise a ValueError unless `passes` is a positive int."""
    if not isinstance(passes, int) or isinstance(passes, bool) or passes <= 0:
        raise ValueError(
            f"{function}: expected backward_passes_per_step > 0, got {passes!r}. It is the number "
            "of backward passes whose gradients make up one step."
        )


def _step_scaled(scaler: Any, optimizer: torch.optim.Optimizer) -> None:
    """Step as a rank with a batch does: the scale of its next loss must be that of the others."""
    scaler.scale(optimizer.param_groups[0]["params"][0].new_zeros(()))  # makes a new scaler's scale
    scaler.step(optimizer)
    scaler.update()


def wrapped_class(base: type[torch.optim.Optimizer]) -> type[Any]:  # noqa: C901  # one class
    """Return a class for wrapped optimizers of class `base`."""
    own_names: AbstractSet[str] = _OWN

    class Wrapped(base, WrappedOptimizer):  # type: ignore[valid-type, misc]  # made at run time
        # Read from the inner optimizer, as all else. But `isinstance` with a protocol, Lightning's
        # for one, looks for them on the class without asking `__getattribute__`
        state = defaults = param_groups = property()

        def __init__(
            self,
            inner: torch.optim.Optimizer,
            control: OptimizerControl,
            companion: Companion | None = None,
        ) -> None:
            object.__setattr__(self, "_hvs_inner", inner)
            object.__setattr__(self, "_hvs_control", control)
            object.__setattr__(self, "_hvs_companion", companion)

        @property
        def _step_supports_amp_scaling(self) -> bool:
            # A GradScaler asks this before it unscales. A fused optimizer would do that by itself,
            # and only with its own rank's gradients
            self._hvs_control.before_scaler_step()
            return False

        def __getattribute__(self, name: str) -> Any:
            # What the inner optimizer has of its own, also where its class has a default
            if name not in own_names and not name.startswith("__"):
                values = vars(object.__getattribute__(self, "_hvs_inner"))
                if name in values:
                    return values[name]
            return super().__getattribute__(name)

        def __setattr__(self, name: str, value: Any) -> None:
            # Schedulers replace methods of the object that they are given
            object.__setattr__(self if name in own_names else self._hvs_inner, name, value)

        def step(self, closure: Callable[[], Any] | None = None) -> Any:
            # A scheduler made for the inner optimizer has replaced its step, to count the calls
            hide_momentum(self._hvs_inner.param_groups, self._hvs_control.taken_momentum)
            replaced = vars(self._hvs_inner).get("step")
            local_step = super().step if replaced is None else replaced
            result = self._hvs_control.step(local_step, closure)
            if self._hvs_companion is not None:
                self._hvs_companion.end_epoch()
            return result

        def join(self) -> int:
            groups, exchange = self._hvs_inner.param_groups, self._hvs_control.exchange
            step = self.step
            if exchange is not None and exchange.options.scales_loss:
                step = functools.partial(_step_scaled, exchange.options.scaler, self)
            return self._hvs_control.join(step, lambda numbers: write_numbers(groups, numbers))

        def add_param_group(self, param_group: dict[str, Any]) -> None:
            self._hvs_control.before_add_param_group()
            self._hvs_inner.add_param_group(param_group)
            self._hvs_control.exchange_more(self._hvs_inner.param_groups)

        def zero_grad(self, set_to_none: bool = True) -> None:
            self._hvs_control.before_zero_grad()
            self._hvs_inner.zero_grad(set_to_none=set_to_none)

        def state_dict(self) -> dict[str, Any]:
            return self._inner_state() | self._hvs_control.state() | self._beside()

        def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
            self._hvs_control.check_state(state_dict)  # all of it is loaded, or nothing
            companion, beside = self._hvs_companion, state_dict.get(COMPANION_KEY)
            if companion is not None and beside is not None:
                companion.check_state_dict(beside)
            elif companion is not None:
                _logger.warning(
                    "horovod_sylvie: the loaded state has no halo rows; they stay as they are"
                )
            ours = (STATE_KEY, COMPANION_KEY)
            own = {key: value for key, value in state_dict.items() if key not in ours}
            self._hvs_inner.load_state_dict(own)
            self._hvs_control.load_state(state_dict, self._hvs_inner.param_groups)
            if companion is not None and beside is not None:
                companion.load_state_dict(beside)

    own_names = (_OWN | set(vars(Wrapped)) | set(vars(WrappedOptimizer))) - _OF_THE_INNER
    Wrapped.step.hooked = True  # type: ignore[attr-defined]  # else torch runs step hooks twice
    Wrapped.__name__ = Wrapped.__qualname__ = base.__name__
    Wrapped.__module__ = "horovod.torch.optimizer"
    return Wrapped
