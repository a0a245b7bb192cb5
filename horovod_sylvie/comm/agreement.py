"""Steps that all ranks do together, or all refuse together.

A rank that fails alone leaves the others waiting. These functions make a failure, or a
disagreement, known to every rank, so that each ends with a message that names the cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .errors import PeerError
from .protocol import Communicator


def gather_bytes(comm: Communicator, payload: bytes, *, name: str) -> list[bytes]:
    """Collect a byte string of any length from every rank.

    Args:
        comm: The communicator. Collective: all ranks call.
        payload: This rank's bytes.
        name: Stable name, the same on every rank.

    Returns:
        Every rank's bytes, in rank order. P entries. Messages: one allgather of 8 bytes per rank
        and one of the longest payload's length per rank.
    """
    length = torch.tensor([len(payload)], dtype=torch.int64)
    lengths = comm.allgather(length, name=f"{name}.length").wait().tolist()
    longest = max(lengths)
    if longest == 0:
        return [b""] * comm.size
    padded = bytearray(payload.ljust(longest, b"\0"))
    frame = torch.frombuffer(padded, dtype=torch.uint8).reshape(1, longest)
    frames = comm.allgather(frame, name=f"{name}.bytes").wait()
    return [row[:n].numpy().tobytes() for row, n in zip(frames, lengths, strict=True)]


def require_agreement(comm: Communicator, what: str, value: str, *, advice: str) -> None:
    """Refuse to go on where ranks hold different values.

    Args:
        comm: The communicator. Collective: all ranks call.
        what: What is compared; also the operation's name.
        value: This rank's value.
        advice: What the user should do where they differ.

    Raises:
        PeerError: On every rank, if any two values differ. The text lists them.
    """
    values = [raw.decode() for raw in gather_bytes(comm, value.encode(), name=f"agree.{what}")]
    if len(set(values)) == 1:
        return
    listing = "; ".join(f"rank {rank}: {value}" for rank, value in enumerate(values))
    raise PeerError(f"rank {comm.rank}: the ranks differ in {what} ({listing}). {advice}")


@contextmanager
def together(comm: Communicator, step: str) -> Iterator[None]:
    """Run a block on every rank, and raise on every rank if it raised on any.

    Args:
        comm: The communicator. Collective: all ranks enter, and the block itself communicates
            nothing or completes what it starts.
        step: What the block does, for messages; also the operation's name.

    Raises:
        PeerError: On ranks where the block succeeded, if it raised elsewhere. Ranks where it
            raised keep their own exception.
    """
    failure: Exception | None = None
    try:
        yield
    except Exception as error:  # not KeyboardInterrupt: who interrupts does not want to wait
        failure = error
    outcome = "" if failure is None else f"{type(failure).__name__}: {failure}"
    outcomes = gather_bytes(comm, outcome.encode(), name=f"together.{step}")
    if failure is not None:
        raise failure
    failed = [f"rank {rank}: {raw.decode()}" for rank, raw in enumerate(outcomes) if raw]
    if failed:
        raise PeerError(f"rank {comm.rank}: {step} failed on {'; '.join(failed)}")
