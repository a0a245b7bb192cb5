"""What a checkpoint's halo state must be before any of it is taken over.

A file may be damaged, of another release, or of another partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from .bit_allocation import check_bits
from .loss_trend import LossTrend
from .plan import HaloPlan
from .traffic import Direction

_KINDS: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        "version": int,
        "rank": int,
        "num_ranks": int,
        "digest": str,
        "options": str,
        "shared": dict,
        "steps": dict,
        "kept": dict,
        "sent": dict,
        "streams": dict,
        "bits_version": int,
        "bits": dict,
        "times_s": list,
        "num_trials": int,
    }
)
_SHARED_KINDS: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        "epoch": int,
        "bits": str,
        "codec": str,
        "trend": list,
    }
)


def text_of(key: tuple[str, Direction]) -> str:
    """Return a slot and direction as one text."""
    return "|".join(key)


def key_of(text: str) -> tuple[str, Direction]:
    """Return the slot and direction of a text."""
    slot, _, direction = text.rpartition("|")
    return slot, "backward" if direction == "backward" else "forward"


def check_kinds(state: Mapping[str, Any], *, version: int) -> None:
    """Raise a ValueError unless everything that is not a tensor is of its kind.

    Args:
        state: What was loaded.
        version: The one that can be read.
    """
    missing = set(_KINDS) - set(state)
    if missing or state["version"] != version:
        raise ValueError(
            f"load_state_dict: expected version {version} of the halo state, got "
            f"{state.get('version')!r} without {sorted(missing)}. It was saved by another release."
        )
    _check_each(state, _KINDS)
    shared = state["shared"]
    _check_each(shared, _SHARED_KINDS)
    if shared.get("chosen") not in (None, True, False):
        raise _damaged("chosen", "True, False or None", shared.get("chosen"))
    if shared["trend"]:
        LossTrend.from_numbers(shared["trend"])
    for name, step in state["steps"].items():
        if not isinstance(step, int):
            raise _damaged(name, "a number of exchanges", step)
    for name, entry in state["kept"].items():
        fits = isinstance(entry, dict) and {"epoch", "drift", "rows"} <= set(entry)
        if not fits or not isinstance(entry["epoch"], int) or not isinstance(entry["drift"], float):
            raise _damaged(name, "an epoch, a drift and rows", entry)
    for name, entry in state["bits"].items():
        if not isinstance(entry, dict) or not {"version", "sent", "received"} <= set(entry):
            raise _damaged(name, "a version and bits", entry)


def check_tensors(state: Mapping[str, Any], plan: HaloPlan) -> None:
    """Raise a ValueError unless every tensor fits a plan.

    Args:
        state: What was loaded; its kinds were checked.
        plan: Of this rank.
    """
    routes = {"forward": plan.forward, "backward": plan.backward}
    sent_and_received = {
        direction: (route.num_unique, sum(route.recv_splits)) for direction, route in routes.items()
    }
    for text, entry in state["kept"].items():
        _, num_received = sent_and_received[key_of(text)[1]]
        _check_rows(text, entry["rows"], num_received, dimensions=2)
    for name, rows in state["sent"].items():
        num_sent, _ = sent_and_received[key_of(name.replace(".", "|"))[1]]
        _check_rows(name, rows, num_sent, dimensions=2)
    for text, entry in state["bits"].items():
        counts = sent_and_received[key_of(text)[1]]
        for name, count in zip(("sent", "received"), counts, strict=True):
            _check_rows(f"{text} {name}", entry[name], count, dimensions=1)
            check_bits("load_state_dict", f"{text} {name}", entry[name], count)
    for slot, stream in state["streams"].items():
        for name, count in zip(("sent", "received"), sent_and_received["forward"], strict=True):
            if name in stream:
                _check_rows(f"{slot} {name}", stream[name], count, dimensions=2)


def _check_each(values: Mapping[str, Any], kinds: Mapping[str, type[Any]]) -> None:
    for name, kind in kinds.items():
        value = values.get(name)
        if not isinstance(value, kind) or (isinstance(value, int) and value < 0):
            raise _damaged(name, f"something of type {kind.__name__}", value)


def _check_rows(name: str, rows: Any, num_rows: int, *, dimensions: int) -> None:
    fits = isinstance(rows, Tensor) and rows.dim() == dimensions and len(rows) == num_rows
    if fits and bool(torch.isfinite(rows).all()):
        return
    got = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
    raise ValueError(
        f"load_state_dict: expected {num_rows} finite rows for '{name}' of the halo state, got "
        f"{got}. The file is damaged, or of another partition."
    )


def _damaged(name: str, expected: str, got: Any) -> ValueError:
    return ValueError(
        f"load_state_dict: expected {expected} for '{name}' of the halo state, got "
        f"{str(got)[:80]!r}. The file is damaged."
    )
