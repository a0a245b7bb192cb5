"""Small tensors that the host makes, to where they are needed, without waiting for the device.

Copied from ordinary memory, they would make the host wait until the stream has done all that it
was given before.
"""

from __future__ import annotations

import torch
from torch import Tensor


def write_from_host(target: Tensor, source: Tensor) -> None:
    """Copy a host tensor into one of any device, behind what the current stream has been given.

    Args:
        target: Written.
        source: On the host; free to go at once. Shape and dtype of `target`.
    """
    if target.is_cuda:
        source = source.pin_memory()  # torch uses this memory again when the copy has read it
    target.copy_(source, non_blocking=True)


def moved_from_host(source: Tensor, device: torch.device) -> Tensor:
    """Return a host tensor on a device, where it is once the current stream comes to it.

    Args:
        source: On the host.
        device: Where to. On the host: `source` itself.
    """
    if device.type == "cpu":
        return source
    target = torch.empty_like(source, device=device)
    write_from_host(target, source)
    return target
