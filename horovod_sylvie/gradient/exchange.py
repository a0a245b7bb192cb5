"""What the schedule may ask of the exchange of one group of parameters.

A group is exchanged in five moves: `start` when its last gradient is there, `proceed` where a
second phase depends on the first, `wait` and `decode` while other groups are still on their way,
and then `commit` on every group, or `revert` on every group where a gradient was not finite. Until
`decode`, `grad` holds the local gradient; after a step that was reverted, nothing that counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..comm.errors import CommunicationError
from ..comm.protocol import Handle
from .parameter import ExchangedParameter


@dataclass(frozen=True)
class Step:
    """What all exchanges of one optimizer step share.

    Attributes:
        number: Optimizer step, from 0; the same on every rank.
        clip: What the local gradients are multiplied by before anything else.
        loss_scale: What the loss was multiplied by (1 without a GradScaler). Gradients stay in
            that unit; residuals do not.
        joined: Whether this rank has no more batches, and sends nothing.
        sampled: Whether telemetry is taken.
    """

    number: int
    clip: float = 1.0
    loss_scale: float = 1.0
    joined: bool = False
    sampled: bool = False


@dataclass
class ExchangeCost:
    """What a group's exchange has cost on this rank, added up over steps.

    Times of day are those of `time.perf_counter`.

    Attributes:
        num_steps: Steps counted.
        payload_bytes: Bytes handed to the communicator.
        bytes_sent: Bytes that ring algorithms send for them over this rank's link.
        selection_s: Seconds spent preparing what is sent.
        waiting_s: Seconds spent waiting for what others send.
        decoding_s: Seconds spent turning it into gradients.
        submitted_s: When the newest step's operation was submitted.
        completed_s: When it had come, if this rank saw that: None where it was there before.
    """

    num_steps: int = 0
    payload_bytes: int = 0
    bytes_sent: int = 0
    selection_s: float = 0.0
    waiting_s: float = 0.0
    decoding_s: float = 0.0
    submitted_s: float = 0.0
    completed_s: float | None = None

    def count(self, payload_bytes: int, bytes_sent: int) -> None:
        """Count one step's bytes, just submitted."""
        self.num_steps += 1
        self.payload_bytes += payload_bytes
        self.bytes_sent += bytes_sent
        self.submitted_s = time.perf_counter()

    def wait(self, handle: Handle) -> Tensor:
        """Wait for an operation, and count the time."""
        started_s = time.perf_counter()
        was_there = handle.poll()
        result = handle.wait()
        ended_s = time.perf_counter()
        self.waiting_s += ended_s - started_s
        self.completed_s = None if was_there else ended_s
        return result


class Exchange(Protocol):
    """The exchange of one group's gradients."""

    @property
    def name(self) -> str:
        """Stable name of the group, the same on every rank."""
        ...

    @property
    def parameters(self) -> tuple[ExchangedParameter, ...]:
        """The group's parameters."""
        ...

    @property
    def cost(self) -> ExchangeCost:
        """What it has cost so far."""
        ...

    def start(self, step: Step) -> None:
        """Submit the local gradients; parameters without one send nothing, or zeros."""
        ...

    def proceed(self) -> None:
        """Submit what depends on the first answer, if anything does; may wait for that."""
        ...

    def wait(self) -> list[str]:
        """Wait for the other ranks' gradients.

        Returns:
            A description of each gradient that was not finite; the same on every rank.
        """
        ...

    def decode(self, num_active: int) -> None:
        """Turn what came into gradients. `num_active`: ranks that had a batch, for the mean."""
        ...

    def commit(self) -> None:
        """Keep what the step leaves: all groups of it are there."""
        ...

    def revert(self) -> None:
        """Wait for what is in flight, forget what came, and take back what was selected."""
        ...


def drain(handle: Handle | None) -> None:
    """Wait for an operation whose result nobody wants: its name and its memory are then free."""
    if handle is not None:
        with suppress(CommunicationError):
            handle.wait()


def gradient_norms(parameters: Sequence[ExchangedParameter], step: Step) -> Tensor:
    """Return the norm of each local gradient, clipped and free of a loss scale; 0 without one.

    Returns:
        On the parameters' one device: a hook must not wait for it. [n], float64
    """
    norms = [
        parameter.tensor.new_zeros((), dtype=torch.float32)
        if (gradient := parameter.gradient()) is None
        else torch.linalg.vector_norm(gradient.float())
        for parameter in parameters
    ]
    return torch.stack(norms).double() * step.clip / step.loss_scale


def ring_allreduce_bytes(nbytes: int, num_ranks: int) -> int:
    """Return what each rank sends in a ring allreduce: 2 (P-1)/P of the bytes."""
    return 2 * (num_ranks - 1) * nbytes // num_ranks


def ring_allgather_bytes(nbytes: int, num_ranks: int) -> int:
    """Return what each rank sends in a ring allgather: P-1 times its share."""
    return (num_ranks - 1) * nbytes
