"""The communicator over unmodified Horovod, for tensors on the host or on a GPU.

Where Horovod was built with NCCL, it is given GPU tensors as they are. Otherwise it would copy
them by itself, and copies the results back in the default stream, behind all kernels that wait
there, on the one thread that all communication needs: nothing would overlap with backward. So they
are staged here.
"""

from __future__ import annotations

from typing import Any

from ..device.cuda_streams import CudaStreams
from .adopted import AdoptedCommunicator
from .horovod_build import has_gpu_operations
from .horovod_operations import HorovodOperations
from .leaving import call_before_exit
from .passing import PassingCommunicator
from .staged import StagedCommunicator


class HorovodCommunicator(PassingCommunicator):
    """All ranks of a `horovodrun` job, or those of one process set.

    Args:
        timeout_s: Deadline of each wait, in seconds. The default is the environment variable
            HVS_TIMEOUT_S, or 300.
        process_set: A `horovod.torch.ProcessSet` that this process belongs to; None for all ranks.

    Raises:
        ImportError: Horovod is missing or was built without PyTorch; the text has the command.
        RuntimeError: `hvd.init()` was not called.
        ValueError: The deadline is not positive, or the process set is not registered or does not
            hold this process.
    """

    def __init__(self, *, timeout_s: float | None = None, process_set: Any = None) -> None:
        operations = HorovodOperations(timeout_s=timeout_s, process_set=process_set)
        self._timeout_s = operations.timeout_s
        streams = CudaStreams()
        if has_gpu_operations():
            super().__init__(AdoptedCommunicator(operations, streams))
            return
        staged = StagedCommunicator(operations, streams, timeout_s=self._timeout_s)
        super().__init__(staged)
        # Before the operations wait for what is in flight: they have registered before
        call_before_exit(staged.leave)

    @property
    def timeout_s(self) -> float:
        """Deadline of each wait, in seconds."""
        return self._timeout_s
