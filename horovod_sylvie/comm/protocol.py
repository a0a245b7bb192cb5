"""What the rest of the package may ask of a communicator.

Ranks and bytes live here; no algorithm does. Every operation is collective: each rank submits it
under the same name, in any order, and waits for its handle exactly once. Two implementations:
`horovod_sylvie.comm.horovod` (processes) and `horovod_sylvie.comm.loopback` (threads).

Shapes: P ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor


class Handle(Protocol):
    """An operation in flight. It owns the tensors that it needs until it is waited on."""

    @property
    def name(self) -> str:
        """The operation's name, the same on every rank."""
        ...

    def poll(self) -> bool:
        """Return whether `wait` would return at once. Never blocks."""
        ...

    def wait(self) -> Tensor:
        """Return the result; block until it is there.

        Returns:
            The operation's result, owned by the caller.

        Raises:
            CommunicationTimeout: The deadline passed; the text names what is pending here.
            CommunicationError: A peer ended, the connection broke, or peers disagree.
            RuntimeError: The handle was waited on before.
        """
        ...


@runtime_checkable
class Communicator(Protocol):
    """A fixed group of ranks, numbered 0 to `size - 1`.

    An implementation validates every argument before it submits anything, so that a caller's
    mistake is an error on its own rank and not a hang on the others, and it gives every wait a
    deadline.
    """

    @property
    def rank(self) -> int:
        """This process's (or thread's) number."""
        ...

    @property
    def size(self) -> int:
        """The number of ranks, P."""
        ...

    def ranks_changed(self) -> bool:
        """Return whether the world now has other ranks than this was made for: use another one."""
        ...

    def allreduce(self, tensor: Tensor, *, name: str) -> Handle:
        """Sum a tensor over all ranks.

        Args:
            tensor: Same shape and dtype on every rank. Not modified.
            name: Stable name, the same on every rank.

        Returns:
            A handle whose result has the shape and dtype of `tensor`.
        """
        ...

    def allreduce_(
        self, tensor: Tensor, *, name: str, prescale: float = 1.0, postscale: float = 1.0
    ) -> Handle:
        """Sum a tensor over all ranks, in place, and scale it.

        Args:
            tensor: Same shape and dtype on every rank. Holds the result once the handle was
                waited on, and nothing that means anything before.
            name: Stable name, the same on every rank.
            prescale: Multiplies every rank's tensor before the sum.
            postscale: Multiplies the sum.

        Returns:
            A handle whose result is `tensor`.
        """
        ...

    def allgather(self, tensor: Tensor, *, name: str) -> Handle:
        """Collect tensors of one shape from all ranks.

        Args:
            tensor: Same shape and dtype on every rank, at least one dimension. [n, ...]
            name: Stable name, the same on every rank.

        Returns:
            A handle whose result is the ranks' tensors in rank order. [P * n, ...]
        """
        ...

    def alltoall(
        self, tensor: Tensor, send_splits: Sequence[int], recv_splits: Sequence[int], *, name: str
    ) -> Handle:
        """Send consecutive rows of a tensor to each rank.

        Args:
            tensor: Rows in order of their destination. [sum(send_splits), ...]
            send_splits: Number of rows for each rank. P non-negative ints.
            recv_splits: Number of rows from each rank. P non-negative ints.
            name: Stable name, the same on every rank.

        Returns:
            A handle whose result is the rows received, in rank order. [sum(recv_splits), ...]
        """
        ...
