"""What staging needs of a device: copies beside what it computes, and events to ask for.

A device does what it is given in *streams*, each in order, while the host goes on. The *current*
stream is that of the caller's kernels. Nothing here makes the host wait.

`CudaStreams` is the one for CUDA; tests have one whose copies end when they are told to.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class DeviceEvent(Protocol):
    """A point in a stream."""

    def is_complete(self) -> bool:
        """Return whether the device has come past it. Never blocks."""
        ...


class DeviceStreams(Protocol):
    """Copies between a device and page-locked host memory."""

    def holds(self, tensor: Tensor) -> bool:
        """Return whether a tensor is on this kind of device."""
        ...

    def allocate(self, nbytes: int) -> Tensor:
        """Return new host memory that the device can copy from and to by itself.

        Returns:
            Bytes that mean nothing. [nbytes], uint8
        """
        ...

    def copy_out(self, source: Tensor, host: Tensor) -> DeviceEvent:
        """Copy to the host, behind what the current stream has been given so far.

        Args:
            source: On the device; must stay as it is, and alive, until the copy is complete.
            host: Written; of `allocate`. Shape and dtype of `source`.

        Returns:
            When `host` is written.
        """
        ...

    def copy_in(
        self, host: Tensor, device: torch.device, out: Tensor | None = None
    ) -> tuple[Tensor, DeviceEvent]:
        """Copy to the device; what the current stream is given from now on comes after the copy.

        Args:
            host: Of `allocate`; must stay as it is until the copy is complete.
            device: Where to.
            out: Written; None for a new tensor. Shape and dtype of `host`.

        Returns:
            What was written, to be used in the current stream, and when `host` was read.
        """
        ...

    def adopt(self, tensor: Tensor) -> None:
        """Let the current stream use a tensor that another thread made in the default stream."""
        ...
