"""Horovod's reduction constants by name, since nothing above this folder knows Horovod."""

from __future__ import annotations

from typing import Any, Final

from .horovod_build import require_horovod

_NAMES: Final = ("Average", "Sum", "Adasum", "Min", "Max", "Product")


def reduce_op_name(op: Any) -> str:
    """Return the name of a reduction.

    Args:
        op: A name ("Average", "Sum", ...), or a constant of `horovod.torch` (`hvd.Average`).

    Raises:
        ValueError: It is neither.
    """
    if isinstance(op, str) and op in _NAMES:
        return op
    if not isinstance(op, str):
        hvd = require_horovod()
        for name in _NAMES:
            if getattr(hvd, name) is op or (type(op) is int and getattr(hvd, name) == op):
                return name
    raise ValueError(
        f"reduce_op_name: expected hvd.Average, hvd.Sum, 'Average' or 'Sum' for 'op', got {op!r}."
    )
