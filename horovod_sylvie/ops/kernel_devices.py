"""Where kernels exist and run: devices, streams and dtypes, for all calls of the native library."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
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
    if device.type not in ("cpu", "cuda"):
        warn_slow(f"there is no kernel for {doing} {device.type!r} tensors")
        return None
    native = native_or_none()
    if native is None or device.type == "cpu":
        return native
    problem = _cuda_problem(
        native, torch.cuda.current_device() if device.index is None else device.index
    )
    if problem is not None:
        warn_slow(f"there is no kernel for {doing} 'cuda' tensors: {problem}")
        return None
    return native


@functools.cache
def _cuda_problem(native: Any, device_index: int) -> str | None:
    problem: str | None = native.cuda_problem(device_index)
    return problem


def stream_of(device: torch.device) -> int | None:
    """Return the stream in which kernels for a device run, as the native library takes it.

    Returns:
        The current stream of a GPU; None for the CPU.
    """
    if device.type != "cuda":
        return None
    stream: int = torch.cuda.current_stream(device).cuda_stream
    return stream


def made_current(device: torch.device) -> AbstractContextManager[None]:
    """Make a GPU the current device within a `with` statement, as its kernels need."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


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
