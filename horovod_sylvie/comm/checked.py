"""A communicator that watches how it is used: every operation is waited on exactly once.

For tests and debugging: it remembers every submission, so its memory grows while it lives. Put it
around any other communicator:

    with CheckedCommunicator(comm) as checked:
        train(checked)  # leaving raises where a handle was never waited on

It is not a `HorovodCommunicator`, so a job whose ranks change (Horovod Elastic) cannot use it.

Not here: what each operation does, and whether it can be done (`horovod.py`, `loopback.py`).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final

from torch import Tensor

from .passing import PassingCommunicator, PassingHandle
from .protocol import Communicator, Handle

if TYPE_CHECKING:
    from typing_extensions import Self

_THIS_FOLDER: Final = str(Path(__file__).parent)


@dataclass
class _Operation:
    """One submission. `submitted_at`, `waited_at`: places in the code; empty if never waited on."""

    kind: str
    name: str
    submitted_at: str
    waited_at: str = ""


class CheckedHandle(PassingHandle):
    """An operation in flight that may be waited on once."""

    def __init__(self, owner: CheckedCommunicator, operation: _Operation, inner: Handle) -> None:
        super().__init__(inner)
        self._owner = owner
        self._operation = operation

    def wait(self) -> Tensor:
        """Return the result; see `horovod_sylvie.comm.protocol.Handle.wait`."""
        return self._owner._finish(self._operation, self._inner)


class CheckedCommunicator(PassingCommunicator):
    """Passes everything on, and raises where an operation is misused.

    Refused at once are a second wait, and a name that is still in flight. What was never waited on
    is known at the end only: ask `check_complete`, or use this as a context manager, which asks
    when its block ends without an exception.

    Args:
        inner: What communicates.
    """

    def __init__(self, inner: Communicator) -> None:
        super().__init__(inner)
        self._operations: list[_Operation] = []
        self._in_flight: dict[str, _Operation] = {}
        self._second_waits: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:  # who raises leaves operations behind, and has told more than that
            self.check_complete()

    @property
    def submissions(self) -> tuple[tuple[str, str], ...]:
        """Kind ("allreduce", ...) and name of every operation so far, in order."""
        return tuple((each.kind, each.name) for each in self._operations)

    @property
    def num_submitted(self) -> Mapping[tuple[str, str], int]:
        """How often each kind and name was submitted: the same on all ranks, whatever the order."""
        return MappingProxyType(Counter(self.submissions))

    def check_complete(self) -> None:
        """Check that every operation was waited on, and none twice.

        Raises:
            RuntimeError: One was not; the text lists where such operations were submitted. Or one
                was waited on again, and whoever did so caught the error.
        """
        pending = [each for each in self._operations if not each.waited_at]
        problems = [
            f"'{each.name}' ({each.kind}), submitted at {each.submitted_at}, was never waited on"
            for each in pending
        ]
        problems += self._second_waits
        if problems:
            raise RuntimeError(
                f"check_complete: rank {self.rank}: expected each of {len(self._operations)} "
                f"operations to be waited on once, got {len(problems)} that were not: "
                f"{'; '.join(problems)}. Wait for each handle exactly once."
            )

    def _submit(
        self, kind: str, tensor: Tensor, name: str, start: Callable[[Tensor], Handle]
    ) -> CheckedHandle:
        earlier = self._in_flight.get(name)
        if earlier is not None:
            raise ValueError(
                f"{kind}: expected a name that is not in flight for 'name', got '{name}', which "
                f"was submitted at {earlier.submitted_at}. Wait for the earlier operation first."
            )
        inner = start(tensor)  # what it refuses was not submitted
        operation = _Operation(kind, name, _place_outside())
        self._operations.append(operation)
        self._in_flight[name] = operation
        return CheckedHandle(self, operation, inner)

    def _finish(self, operation: _Operation, inner: Handle) -> Tensor:
        if operation.waited_at:
            problem = (
                f"'{operation.name}' ({operation.kind}), submitted at {operation.submitted_at}, "
                f"was waited on before, at {operation.waited_at}"
            )
            self._second_waits.append(f"{problem}, and again at {_place_outside()}")
            raise RuntimeError(f"wait: the handle of {problem}. Wait for each handle once.")
        operation.waited_at = _place_outside()
        try:
            return inner.wait()
        finally:  # a wait that fails is over too
            del self._in_flight[operation.name]


def _place_outside() -> str:
    """Return file and line of the nearest caller that is not of this folder."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(Path(frame.f_code.co_filename).parent) == _THIS_FOLDER:
        frame = frame.f_back
    return "an unknown place" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
