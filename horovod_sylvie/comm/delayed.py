"""A communicator that makes its rank late at random, so that ranks drift apart.

For tests and debugging: an exchange that only works while ranks keep step fails here soon. Put it
around any other communicator, on every rank or on some.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from torch import Tensor

from .passing import PassingCommunicator, PassingHandle
from .protocol import Communicator, Handle

_SHARE: Final = 0.3


class DelayedHandle(PassingHandle):
    """An operation in flight; some of the waits for one begin late. Polling never is."""

    def __init__(self, owner: DelayedCommunicator, inner: Handle) -> None:
        super().__init__(inner)
        self._owner = owner

    def wait(self) -> Tensor:
        """Return the result; see `horovod_sylvie.comm.protocol.Handle.wait`."""
        self._owner._be_late()
        return super().wait()


class DelayedCommunicator(PassingCommunicator):
    """Passes everything on, and sleeps before some submissions and before some waits.

    How long and when depends on the seed, the rank and the number of calls so far, so that ranks
    are late at different calls, and a run can be had again.

    Args:
        inner: What communicates.
        seed: Of the delays; ranks with the same one differ all the same.
        longest_s: A delay is drawn evenly from 0 to this many seconds.
        share: Of all calls, how many are delayed, from 0 to 1.

    Raises:
        ValueError: `longest_s` or `share` is out of its range.
    """

    def __init__(
        self, inner: Communicator, *, seed: int, longest_s: float, share: float = _SHARE
    ) -> None:
        if not 0 <= longest_s < float("inf"):
            raise ValueError(
                "DelayedCommunicator: expected a finite number of seconds from 0 for "
                f"'longest_s', got {longest_s!r}."
            )
        if not 0 <= share <= 1:
            raise ValueError(
                f"DelayedCommunicator: expected a number from 0 to 1 for 'share', got {share!r}."
            )
        super().__init__(inner)
        self._random = random.Random(f"{seed}|{inner.rank}")
        self._longest_s = longest_s
        self._share = share
        self._num_delays = 0

    @property
    def num_delays(self) -> int:
        """How many calls were delayed so far."""
        return self._num_delays

    def _submit(
        self, kind: str, tensor: Tensor, name: str, start: Callable[[Tensor], Handle]
    ) -> DelayedHandle:
        self._be_late()
        return DelayedHandle(self, start(tensor))

    def _be_late(self) -> None:
        chosen = self._random.random() < self._share
        delay_s = self._random.uniform(0.0, self._longest_s)  # drawn always: a share shifts nothing
        if chosen:
            self._num_delays += 1
            time.sleep(delay_s)
