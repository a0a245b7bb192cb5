"""A communicator that passes everything on to another one: the base of those that watch or stage.

A subclass changes what it is about: `_submit`, through which every operation goes, and the handle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from .protocol import Communicator, Handle


class PassingHandle:
    """An operation in flight on the inner communicator.

    Args:
        inner: Its handle.
    """

    def __init__(self, inner: Handle) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """The operation's name."""
        return self._inner.name

    def poll(self) -> bool:
        """Return whether `wait` would return at once."""
        return self._inner.poll()

    def wait(self) -> Tensor:
        """Return the result; see `horovod_sylvie.comm.protocol.Handle.wait`."""
        return self._inner.wait()


class PassingCommunicator:
    """Passes everything on.

    Args:
        inner: What communicates.
    """

    def __init__(self, inner: Communicator) -> None:
        self._inner = inner

    @property
    def rank(self) -> int:
        """This rank's number."""
        return self._inner.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._inner.size

    def ranks_changed(self) -> bool:
        """Return whether the world now has other ranks than the inner one was made for."""
        return self._inner.ranks_changed()

    def allreduce(self, tensor: Tensor, *, name: str) -> Handle:
        """Sum a tensor over all ranks."""
        return self._submit(
            "allreduce", tensor, name, lambda sent: self._inner.allreduce(sent, name=name)
        )

    def allreduce_(
        self, tensor: Tensor, *, name: str, prescale: float = 1.0, postscale: float = 1.0
    ) -> Handle:
        """Sum a tensor over all ranks in place, and scale it."""
        return self._submit(
            "allreduce_",
            tensor,
            name,
            lambda sent: self._inner.allreduce_(
                sent, name=name, prescale=prescale, postscale=postscale
            ),
        )

    def allgather(self, tensor: Tensor, *, name: str) -> Handle:
        """Collect tensors of one shape from all ranks."""
        return self._submit(
            "allgather", tensor, name, lambda sent: self._inner.allgather(sent, name=name)
        )

    def alltoall(
        self, tensor: Tensor, send_splits: Sequence[int], recv_splits: Sequence[int], *, name: str
    ) -> Handle:
        """Send consecutive rows of a tensor to each rank."""
        return self._submit(
            "alltoall",
            tensor,
            name,
            lambda sent: self._inner.alltoall(sent, send_splits, recv_splits, name=name),
        )

    def _submit(
        self, kind: str, tensor: Tensor, name: str, start: Callable[[Tensor], Handle]
    ) -> Handle:
        """Submit an operation.

        Args:
            kind: Name of the method that was called.
            tensor: What it was given.
            name: The operation's name.
            start: Submits a tensor to the inner communicator: this one, or another in its place.
        """
        return start(tensor)
