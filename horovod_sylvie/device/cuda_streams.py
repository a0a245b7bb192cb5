"""Copies of CUDA tensors, in two streams of their own: one out, one in.

In a stream of their own they run while kernels do. Two, because a copy out waits for the kernels
that write its source, and a result that is there must not queue behind it.

Nothing of this has run on a GPU yet.
"""

from __future__ import annotations

import torch
from torch import Tensor


class CudaEvent:
    """A point in a CUDA stream.

    Args:
        event: Recorded.
    """

    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def is_complete(self) -> bool:
        """Return whether the device has come past it."""
        return bool(self._event.query())


class CudaStreams:
    """The streams of one communicator, for any number of devices; made when they are needed."""

    def __init__(self) -> None:
        self._outgoing: dict[torch.device, torch.cuda.Stream] = {}
        self._incoming: dict[torch.device, torch.cuda.Stream] = {}

    def holds(self, tensor: Tensor) -> bool:
        """Return whether a tensor is on a GPU."""
        return tensor.is_cuda

    def allocate(self, nbytes: int) -> Tensor:
        """Return page-locked memory. [nbytes], uint8."""
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    def copy_out(self, source: Tensor, host: Tensor) -> CudaEvent:
        """See `horovod_sylvie.device.streams.DeviceStreams.copy_out`."""
        stream = _stream(self._outgoing, source.device)
        stream.wait_stream(torch.cuda.current_stream(source.device))
        with torch.cuda.stream(stream):
            host.copy_(source, non_blocking=True)
        return CudaEvent(stream.record_event())

    def copy_in(
        self, host: Tensor, device: torch.device, out: Tensor | None = None
    ) -> tuple[Tensor, CudaEvent]:
        """See `horovod_sylvie.device.streams.DeviceStreams.copy_in`."""
        stream, current = _stream(self._incoming, device), torch.cuda.current_stream(device)
        with torch.cuda.stream(stream):
            # Made in this stream: memory of the current one may be in use by kernels before
            target = torch.empty_like(host, device=device) if out is None else out
            target.copy_(host, non_blocking=True)
        done = stream.record_event()
        current.wait_event(done)
        if out is None:
            target.record_stream(current)  # its memory is not used again before that is through
        return target, CudaEvent(done)

    def adopt(self, tensor: Tensor) -> None:
        """See `horovod_sylvie.device.streams.DeviceStreams.adopt`."""
        current = torch.cuda.current_stream(tensor.device)
        default = torch.cuda.default_stream(tensor.device)
        if current != default:
            # With HOROVOD_ENABLE_ASYNC_COMPLETION only the default stream waits for the result
            current.wait_stream(default)
            tensor.record_stream(current)


def _stream(
    streams: dict[torch.device, torch.cuda.Stream], device: torch.device
) -> torch.cuda.Stream:
    if device not in streams:
        streams[device] = torch.cuda.Stream(device)
    return streams[device]
