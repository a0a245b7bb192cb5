"""What ranks tell each other about a step, apart from gradients.

Once, before the first exchange: that they run the same plan, and which step it is. In every step
only where needed: which parameters have a sparse gradient on which rank (nobody knows before a
first gradient is there), and, with uneven numbers of batches, which ranks go on.

Shapes: P ranks, N parameters, H hyperparameters.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from ..comm.agreement import gather_bytes
from ..comm.errors import PeerError
from ..comm.protocol import Communicator

NO_GRADIENT: Final = 0
DENSE_GRADIENT: Final = 1
SPARSE_GRADIENT: Final = 2  # and the number of rows


@dataclass(frozen=True)
class Status:
    """What all ranks said.

    Attributes:
        active: Which ranks have a batch. P entries
        gradients: NO_GRADIENT, DENSE_GRADIENT, or SPARSE_GRADIENT + rows. [P, N], int64
        hyperparameters: Of the first active rank. H entries
    """

    active: tuple[bool, ...]
    gradients: Tensor
    hyperparameters: tuple[float, ...]

    @property
    def num_active(self) -> int:
        """How many ranks have a batch."""
        return sum(self.active)


def agree_on_plan(comm: Communicator, description: Sequence[str], step: int) -> int:
    """Check that all ranks exchange the same things, and agree on the step.

    Args:
        comm: The communicator. Collective.
        description: Lines that must be the same on every rank.
        step: The step that this rank believes in: ranks that loaded a checkpoint know more.

    Returns:
        The largest step of any rank.

    Raises:
        PeerError: On every rank, if descriptions differ. The text has the first line that does.

    Note:
        Messages: one allgather of 40 bytes per rank; where they differ, the descriptions.
    """
    digest = hashlib.sha256("\n".join(description).encode()).digest()
    own = torch.frombuffer(bytearray(digest + struct.pack("<Q", step)), dtype=torch.uint8)
    rows = comm.allgather(own[None], name="sylvie.agreement").wait().cpu().numpy()
    digests = [row[:32].tobytes() for row in rows]
    if len(set(digests)) == 1:
        return max(int.from_bytes(row[32:].tobytes(), "little") for row in rows)
    texts = gather_bytes(comm, "\n".join(description).encode(), name="sylvie.plans")
    lines = [raw.decode().split("\n") for raw in texts]
    other = next(rank for rank, found in enumerate(lines) if found != lines[0])
    length = max(len(lines[0]), len(lines[other]))
    first, second = (
        found + ["nothing"] * (length - len(found)) for found in (lines[0], lines[other])
    )
    place = next(number for number in range(length) if first[number] != second[number])
    raise PeerError(
        f"rank {comm.rank}: the ranks would exchange different gradients. Rank 0 has "
        f"'{first[place]}', rank {other} has '{second[place]}'. Build the same model, with the "
        "same options of DistributedOptimizer, on every rank."
    )


def exchange_status(
    comm: Communicator,
    *,
    active: bool,
    gradients: Sequence[int],
    hyperparameters: Sequence[float],
) -> Status:
    """Tell all ranks about this rank's step.

    Args:
        comm: The communicator. Collective.
        active: Whether this rank has a batch.
        gradients: What this rank has of each parameter. N entries
        hyperparameters: Numbers that ranks without a batch follow. H entries

    Note:
        Messages: one allgather of 8 (1 + N + H) bytes per rank.
    """
    numbers = torch.tensor(list(hyperparameters), dtype=torch.float64).view(torch.int64)
    own = torch.cat([torch.tensor([int(active), *gradients], dtype=torch.int64), numbers])
    rows = comm.allgather(own[None], name="sylvie.status").wait().cpu()
    flags = tuple(bool(flag) for flag in rows[:, 0].tolist())
    source = flags.index(True) if any(flags) else 0
    return Status(
        flags,
        rows[:, 1 : 1 + len(gradients)],
        tuple(rows[source, 1 + len(gradients) :].contiguous().view(torch.float64).tolist()),
    )
