"""Where kernels exist: which device and dtypes the native library takes, for all of its calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType, ModuleType
from typing import Any, Final

import torch

from .native import native_or_none, warn_slow

DTYPE_NAMES: Final = MappingProxyType(
    {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
)


def native_on(device: torch.device, doing: str) -> Any | None:
    """Return the library that has the kernels for a device, or None, logged once, without one.

    Args:
        device: Where the tensors are.
        doing: What is to be done with them, for the log.
    """
    if device.type != "cpu":
        warn_slow(f"there is no kernel yet for {doing} {device.type!r} tensors")
        return None
    return native_or_none()


def kernel_or_twin(
    operation: str, native: Any | None, kernels: ModuleType, twins: ModuleType
) -> Callable[..., Any]:
    """Return what does an operation: the kernel's call, or its twin where there is no library.

    Args:
        operation: Name of a function that both modules have.
        native: The library, or None.
        kernels: Whose functions take the library first.
        twins: Whose functions do the same without it.
    """
    if native is None:
        twin: Callable[..., Any] = getattr(twins, operation)
        return twin
    return partial(getattr(kernels, operation), native)
