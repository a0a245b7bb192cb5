"""A plan as text: for checkpoints, for other ranks, and to be compared by a digest.

The text is one JSON object with sorted keys and no spaces, so that equal plans have equal texts:

    format    "horovod_sylvie.plan"
    version   1
    groups    a list of {"density": number, "kind": string, "names": list of strings}
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from reprlib import repr as short
from typing import Any, Final, get_args

from .plan import ExchangeKind, Plan, PlannedGroup

_FORMAT: Final = "horovod_sylvie.plan"
_VERSION: Final = 1
_DIGEST_BYTES: Final = 16
_CURE: Final = "Give what plan_to_json wrote for the same model."


def plan_to_json(plan: Plan) -> str:
    """Return a plan's text.

    Args:
        plan: Any.

    Returns:
        JSON, ASCII only; `plan_from_json` returns an equal plan.
    """
    groups = [
        {"names": list(group.names), "kind": group.kind, "density": float(group.density)}
        for group in plan.groups
    ]
    value = {"format": _FORMAT, "version": _VERSION, "groups": groups}
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def plan_digest(plan: Plan) -> str:
    """Return the hash of a plan's text: equal for equal plans only. Hex, 32 digits."""
    return hashlib.blake2b(plan_to_json(plan).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def plan_from_json(text: str | bytes, names: Iterable[str], *, complete: bool = True) -> Plan:
    """Read a plan that came from elsewhere, and trust nothing in it.

    Args:
        text: What `plan_to_json` wrote; bytes are UTF-8.
        names: Of the model's layers, each once.
        complete: Whether the plan must have all of them.

    Returns:
        A plan that has each of these layers in exactly one group, or in at most one.

    Raises:
        ValueError: The text is no plan, is of another version, holds a kind or a density that does
            not exist, or is the plan of other layers.
    """
    value = _parse(text)
    if value.get("format") != _FORMAT or value.get("version") != _VERSION:
        raise _error(
            f"format {_FORMAT!r}, version {_VERSION}",
            f"{short(value.get('format'))}, {short(value.get('version'))}",
        )
    groups = value.get("groups")
    if not isinstance(groups, list):
        raise _error("a list of groups", short(groups))
    plan = Plan(tuple(_group(entry) for entry in groups))
    _check_names(plan, names, complete=complete)
    return plan


def _parse(text: str | bytes) -> dict[str, Any]:
    try:
        value = json.loads(text.decode() if isinstance(text, bytes) else text)
    except (ValueError, RecursionError) as error:
        raise _error("JSON", f"{short(text)} ({error})") from error
    if not isinstance(value, dict):
        raise _error("a JSON object", short(value))
    return value


def _group(entry: object) -> PlannedGroup:
    """Check one group."""
    if not isinstance(entry, dict) or set(entry) != {"names", "kind", "density"}:
        raise _error("names, kind and density of each group", short(entry))
    names, kind, density = entry["names"], entry["kind"], entry["density"]
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise _error("a list of at least one name in each group", short(names))
    if kind not in get_args(ExchangeKind):
        raise _error(f"a kind among {', '.join(get_args(ExchangeKind))}", short(kind))
    # NaN fails this too; a bool is an int to Python, but no density
    if isinstance(density, bool) or not isinstance(density, int | float) or not 0 < density <= 1:
        raise _error(f"a density in (0, 1] for {short(names)}", short(density))
    if kind == "dense" and density != 1:
        raise _error(f"density 1 for {short(names)}, which travel dense", short(density))
    return PlannedGroup(tuple(names), kind, float(density))


def _check_names(plan: Plan, names: Iterable[str], *, complete: bool) -> None:
    """Check that a plan has each layer exactly once, or at most once."""
    expected = set(names)
    counts = Counter(name for group in plan.groups for name in group.names)
    repeated = {name for name, count in counts.items() if count > 1}
    for what, problem, wrong in (
        ("layers of this model only", "also", set(counts) - expected),
        ("every layer of this model", "none for", expected - set(counts) if complete else set()),
        ("each layer once", "more than once", repeated),
    ):
        if wrong:
            raise _error(what, f"{problem} {short(sorted(wrong))}")


def _error(expected: str, got: str) -> ValueError:
    return ValueError(f"plan_from_json: expected {expected} in 'text', got {got}. {_CURE}")
