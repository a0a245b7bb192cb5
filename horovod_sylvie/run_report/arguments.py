"""What a report may be told, and what is said where it is told something else."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def checked_directory(directory: object) -> Path:
    """Return a path."""
    if not isinstance(directory, (str, os.PathLike)) or not str(directory):
        raise TypeError(
            f"RunReport: expected a path for 'directory', got {directory!r}. The report's files "
            "are written there."
        )
    return Path(directory)


def checked_title(title: object) -> str:
    """Return a title."""
    if not isinstance(title, str) or not title:
        raise TypeError(f"RunReport: expected a text for 'title', got {title!r}. Leave it out.")
    return title


def checked_options(options: object) -> dict[str, str]:
    """Return options as text."""
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(
            f"RunReport: expected a mapping or None for 'options', got {type(options).__name__}. "
            "Pass vars(args)."
        )
    return {str(name): str(value) for name, value in (options or {}).items()}


def checked_number(name: str, value: Any) -> float:
    """Return a number, of a tensor too; it may be NaN or infinite."""
    try:
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError) as error:  # the last of a tensor of many elements
        raise TypeError(
            f"add_epoch: expected one number for '{name}', got {value!r}. Leave out what was not "
            "measured."
        ) from error


def checked_scores(name: str, value: Any) -> dict[str, float]:
    """Return numbers by name; those that are None were not measured."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(
            f"add_epoch: expected a mapping or None for '{name}', got {value!r}. Give each figure "
            "a name."
        )
    told = ((str(each), figure) for each, figure in value.items() if figure is not None)
    return {each: checked_number(f"{name}[{each!r}]", figure) for each, figure in told}


def checked_accuracy(value: Any) -> dict[str, float]:
    """Return shares by name; a single one is named after what it is."""
    named = value if value is None or isinstance(value, Mapping) else {"accuracy": value}
    shares = checked_scores("accuracy", named)
    for name, share in shares.items():
        if not (math.isnan(share) or 0 <= share <= 1):
            raise ValueError(
                f"add_epoch: expected a share from 0 to 1 for 'accuracy', got {share} for "
                f"{name!r}. Divide per cent by 100; figures of other kinds are 'scores'."
            )
    return shares


def checked_seconds(seconds: Any) -> float:
    """Return a time."""
    value = checked_number("seconds", seconds)
    if not 0 <= value < math.inf:
        raise ValueError(
            f"add_epoch: expected a time from 0 for 'seconds', got {value}. Subtract two readings "
            "of time.perf_counter()."
        )
    return value


def checked_steps(steps: object) -> int:
    """Return a number of steps."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(
            f"add_epoch: expected an int of at least 1 for 'steps', got {steps!r}. Leave it out "
            "where it is not known."
        )
    return steps


def checked_epoch(epoch: object, newest: int | None) -> int:
    """Return an epoch's number: the one given, or the next behind the newest."""
    if epoch is None:
        return 1 if newest is None else newest + 1
    if isinstance(epoch, bool) or not isinstance(epoch, int):
        raise TypeError(f"add_epoch: expected an int for 'epoch', got {epoch!r}. Count from 1.")
    if newest is not None and epoch <= newest:
        raise ValueError(
            f"add_epoch: expected an 'epoch' behind {newest}, got {epoch}. Add each once, in order."
        )
    return epoch
