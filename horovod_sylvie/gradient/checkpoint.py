"""What a checkpoint holds of error feedback: per rank, or consolidated for any number of ranks.

A residual belongs to one rank. What is pending as a whole is its mean over ranks (with op Average;
the sum with Sum), so one file can hold it: every rank of a later run starts with the mean, or an
equal share of the sum, and no pending update is lost.

The state is made of tensors and numbers only, so `torch.load(weights_only=True)` reads it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from ..planning.plan import Plan
from ..planning.plan_text import plan_from_json, plan_to_json
from .gradient_exchange import GradientExchange
from .sparse_rows_exchange import SparseRowsExchange

STATE_KEY: Final = "horovod_sylvie"
_VERSION: Final = 2
ALL_RANKS: Final = -1  # in place of a rank: the state is of all
_KINDS: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        "step": int,
        "rank": int,
        "num_ranks": int,
        "op": str,
        "rates": dict,
        "by_row": list,
        "plan": str,
        "tensors": dict,
    }
)
_LEAST: Final[Mapping[str, int]] = MappingProxyType({"step": 0, "rank": ALL_RANKS, "num_ranks": 1})

_logger = logging.getLogger(__name__)


def save_feedback(exchange: GradientExchange) -> dict[str, Any]:
    """Return this rank's residuals, velocities and step; most tensors are not copied."""
    exchange.started.settle()  # residuals are brought to the learning rate of the step
    return {
        "version": _VERSION,
        "step": exchange.step_number,
        "rank": exchange.comm.rank,
        "num_ranks": exchange.comm.size,
        "op": exchange.options.reduction.op,
        "rates": {
            name: feedback.last_rate
            for name, feedback in exchange.factory.feedback.items()
            if feedback.last_rate is not None
        },
        "by_row": [
            each.name for each in exchange.exchanges if isinstance(each, SparseRowsExchange)
        ],
        "plan": _plan_text(exchange),
        "tensors": _tensors_of(exchange) | _with_owned(exchange),
    }


def _with_owned(exchange: GradientExchange) -> dict[str, Tensor]:
    """Return, as copies, the residuals of parameters of which this rank owns a share.

    What it keeps as their owner is a part of what is pending, and of its own residual from then on.
    """
    found = {}
    for name, owned in exchange.factory.owners.all().items():
        whole = exchange.factory.feedback[name].residual.clone()
        owned.add_to(whole)
        found[f"residual.{name}"] = whole
    return found


def _plan_text(exchange: GradientExchange) -> str:
    """Return the plan in use, where densities adapt and there is one; else nothing."""
    plan = None if exchange.adaptive is None else exchange.adaptive.plan
    return "" if plan is None else plan_to_json(plan)


def _read_plan(exchange: GradientExchange, text: str) -> Plan:
    """Read a saved plan; parameters that travel by row may be in it, or not."""
    names = [each.name for each in exchange.parameters]
    return plan_from_json(text, names, complete=False)


def consolidate_feedback(exchange: GradientExchange) -> dict[str, Any]:
    """Return the state of all ranks as one, the same on every rank.

    Note:
        Collective. One allreduce of 4 D bytes for each tensor, one after the other.
    """
    comm = exchange.comm
    tensors = {
        name: comm.allreduce(tensor, name=f"sylvie.consolidate.{name}").wait().div_(comm.size)
        for name, tensor in sorted((_tensors_of(exchange) | _with_owned(exchange)).items())
    }
    return save_feedback(exchange) | {"rank": ALL_RANKS, "tensors": tensors}


def load_feedback(exchange: GradientExchange, state: Mapping[str, Any]) -> None:
    """Take over a saved state.

    Args:
        exchange: Whose residuals are overwritten.
        state: From `save_feedback` on this rank of as many ranks, or from `consolidate_feedback`.
            Residuals of another rank are not taken: they would count twice. They start at zero
            then, and a warning says so. What is the same on all ranks is taken.

    Raises:
        ValueError: Another version, or tensors that do not fit; nothing is changed then.
    """
    check_feedback(exchange, state)
    exchange.resume_at(int(state["step"]))
    comm = exchange.comm
    consolidated = state["rank"] == ALL_RANKS
    is_own = (state["rank"], state["num_ranks"]) == (comm.rank, comm.size)
    if not (consolidated or is_own):
        _logger.warning(
            "horovod_sylvie: rank %d of %d starts without residuals, because the checkpoint holds "
            "those of rank %d of %d. Save one file per rank, or optimizer.consolidate().",
            comm.rank,
            comm.size,
            state["rank"],
            state["num_ranks"],
        )
    factor = 1.0 if consolidated or is_own else 0.0
    if consolidated and state["op"] == "Sum":
        factor = state["num_ranks"] / comm.size
    _copy(exchange, state, factor)
    if exchange.adaptive is not None:
        if state["plan"]:
            exchange.adaptive.use(_read_plan(exchange, state["plan"]))
        exchange.follow_plan()  # also the same plan: what is pending now was not, a moment ago


def _copy(exchange: GradientExchange, state: Mapping[str, Any], factor: float) -> None:
    """Take over a state that fits. `factor`: of residuals, and of what is added to them."""
    for name in state["by_row"]:
        momentum = exchange.factory.momentum.get(name)
        if momentum is not None and momentum.velocity is None:
            momentum.velocity = torch.zeros_like(state["tensors"][f"dense_velocity.{name}"])
    exchange.factory.owners.clear()
    for name, feedback in exchange.factory.feedback.items():
        feedback.last_rate = state["rates"].get(name)
    for name, tensor in _tensors_of(exchange).items():
        saved = state["tensors"].get(name)
        if saved is None:
            tensor.zero_()
        else:
            tensor.copy_(saved)
            # Velocities after the exchange are the same on all ranks
            if factor != 1.0 and name.startswith(("residual.", "velocity.")):
                tensor.mul_(factor)


def rescale_feedback(exchange: GradientExchange, num_ranks_before: int) -> None:
    """Keep this rank's pending update what it was, after the number of ranks has changed."""
    if exchange.options.reduction.op == "Average" and num_ranks_before != exchange.comm.size:
        for feedback in exchange.factory.feedback.values():
            feedback.residual.mul_(exchange.comm.size / num_ranks_before)


def _tensors_of(exchange: GradientExchange) -> dict[str, Tensor]:
    """Return what is kept, by a name that says what it is and of which parameter."""
    found: dict[str, Tensor] = {}
    for name, feedback in exchange.factory.feedback.items():
        found[f"residual.{name}"] = feedback.residual
        if feedback.velocity is not None:
            found[f"velocity.{name}"] = feedback.velocity
    for name, momentum in exchange.factory.momentum.items():
        if momentum.velocity is not None:
            found[f"dense_velocity.{name}"] = momentum.velocity
        if momentum.decay is not None:
            found[f"decay.{name}"] = momentum.decay
    return found


def check_feedback(exchange: GradientExchange, state: Mapping[str, Any]) -> None:
    """Raise a ValueError unless a saved state fits, as `load_feedback` does."""
    missing = {"version", *_KINDS} - set(state)
    if missing or state["version"] != _VERSION:
        raise ValueError(
            f"load_state_dict: expected version {_VERSION} of the '{STATE_KEY}' state, got "
            f"{state.get('version')!r} without {sorted(missing)}. It was saved by another release."
        )
    _check_kinds(state)
    if exchange.adaptive is not None and state["plan"]:
        _read_plan(exchange, state["plan"])
    own = _tensors_of(exchange)
    for name in state["by_row"]:  # nobody knows yet that its gradients are sparse
        if f"residual.{name}" in own and exchange.factory.momentum:
            own[f"dense_velocity.{name}"] = own[f"residual.{name}"]
    for name, saved in state["tensors"].items():
        fits = isinstance(saved, Tensor) and name in own and saved.shape == own[name].shape
        if not fits or not bool(torch.isfinite(saved).all()):
            shape = tuple(saved.shape) if isinstance(saved, Tensor) else type(saved).__name__
            raise ValueError(
                f"load_state_dict: '{name}' of the '{STATE_KEY}' state ({shape}) is not finite or "
                f"does not fit this optimizer, which has "
                f"{tuple(own[name].shape) if name in own else 'no such tensor'}. Use the same "
                f"model and compression, or drop state['{STATE_KEY}'] to start without residuals."
            )


def _check_kinds(state: Mapping[str, Any]) -> None:
    """Raise a ValueError unless everything in a state is of its kind: a file may be damaged."""
    wrong = [
        key
        for key, kind in _KINDS.items()
        if not isinstance(state[key], kind) or (key in _LEAST and state[key] < _LEAST[key])
    ]
    if not wrong:
        numbers = all(isinstance(rate, float | int) for rate in state["rates"].values())
        names = all(isinstance(name, str) for name in state["by_row"])
        wrong += ([] if numbers else ["rates"]) + ([] if names else ["by_row"])
    if wrong:
        got = str(state[wrong[0]])[:80]
        raise ValueError(
            f"load_state_dict: expected what state_dict() returns for '{wrong[0]}' of the "
            f"'{STATE_KEY}' state, got {got!r}. The file is damaged."
        )
