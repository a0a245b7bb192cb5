"""A communicator for tensors on a device whose inner one moves them as they are.

Horovod with NCCL records an event in the stream of the call that submits, and NCCL waits for that;
the tensor is kept until the operation was waited on. What is left to do is at the other end: its
own threads make results, in the device's default stream.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..device.streams import DeviceStreams
from .passing import PassingCommunicator, PassingHandle
from .protocol import Communicator, Handle


class AdoptedHandle(PassingHandle):
    """An operation in flight on a device tensor."""

    def __init__(self, streams: DeviceStreams, inner: Handle) -> None:
        super().__init__(inner)
        self._streams = streams

    def wait(self) -> Tensor:
        """Return the result, for the current stream."""
        result = super().wait()
        self._streams.adopt(result)
        return result


class AdoptedCommunicator(PassingCommunicator):
    """Passes everything on, and gives results on a device to the stream that waits for them.

    Args:
        inner: What communicates.
        streams: Of the device.
    """

    def __init__(self, inner: Communicator, streams: DeviceStreams) -> None:
        super().__init__(inner)
        self._streams = streams

    def _submit(
        self, kind: str, tensor: Tensor, name: str, start: Callable[[Tensor], Handle]
    ) -> Handle:
        handle = start(tensor)
        return AdoptedHandle(self._streams, handle) if self._streams.holds(tensor) else handle
