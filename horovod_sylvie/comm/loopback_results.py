"""What an operation between threads gives each rank, once all have submitted their part.

Not here: who waits for whom, and for how long (`loopback.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import CommunicationError


@dataclass(frozen=True)
class Contribution:
    """What one rank submitted.

    Attributes:
        kind: "allreduce", "allreduce_", "allgather" or "alltoall".
        tensor: A copy of the rank's tensor.
        send_splits: Of an alltoall: rows for each rank. P numbers
        recv_splits: Of an alltoall: rows from each rank. P numbers
    """

    kind: str
    tensor: Tensor
    send_splits: tuple[int, ...] = ()
    recv_splits: tuple[int, ...] = ()


def result_of(contributions: list[Contribution], rank: int, name: str) -> Tensor:
    """Compute one rank's result; every rank checks the same things and so raises together.

    Args:
        contributions: By rank. P entries
        rank: Whose result it is.
        name: The operation's name, for messages.

    Returns:
        A tensor of its own, shared with no rank.

    Raises:
        CommunicationError: The ranks submitted different operations, dtypes, shapes or splits.
    """
    first = contributions[0]
    for peer, other in enumerate(contributions):
        same_tail = first.tensor.shape[1:] == other.tensor.shape[1:]
        same_head = first.kind == "alltoall" or first.tensor.shape[:1] == other.tensor.shape[:1]
        if first.kind != other.kind or first.tensor.dtype != other.tensor.dtype:
            raise _disagreement(name, peer, first, other)
        if not (same_tail and same_head):
            raise _disagreement(name, peer, first, other)
    if first.kind in {"allreduce", "allreduce_"}:
        total = first.tensor.clone()
        for other in contributions[1:]:
            total += other.tensor
        return total
    if first.kind == "allgather":
        return torch.cat([other.tensor for other in contributions])
    return _alltoall_result(contributions, rank, name)


def _alltoall_result(contributions: list[Contribution], rank: int, name: str) -> Tensor:
    for sender, source in enumerate(contributions):
        for receiver, target in enumerate(contributions):
            if source.send_splits[receiver] != target.recv_splits[sender]:
                raise CommunicationError(
                    f"'{name}': rank {sender} sends {source.send_splits[receiver]} rows to rank "
                    f"{receiver}, which expects {target.recv_splits[sender]}."
                )
    return torch.cat([source.tensor.split(source.send_splits)[rank] for source in contributions])


def _disagreement(
    name: str, peer: int, first: Contribution, other: Contribution
) -> CommunicationError:
    return CommunicationError(
        f"'{name}': rank 0 submitted {first.kind} of {first.tensor.dtype} "
        f"{tuple(first.tensor.shape)}, rank {peer} submitted {other.kind} of {other.tensor.dtype} "
        f"{tuple(other.tensor.shape)}."
    )
