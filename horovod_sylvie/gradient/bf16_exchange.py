"""Dense exchange in bfloat16, in two phases, since Horovod cannot sum bfloat16.

Each rank owns one share of the group's vector: an alltoall brings it every rank's part of that
share, it sums them in float32, and an allgather brings every rank the sums.

Messages: per step one alltoall and one allgather, of 2 n/P bytes to each of P-1 ranks: together
4 n (P-1)/P bytes, half of a float32 ring allreduce. Both roundings are to nearest.

Shapes: P ranks, n elements of the group, S = ceil(n / P) elements of a share.
"""

from __future__ import annotations

import time

import torch

from ..comm.protocol import Communicator, Handle
from .exchange import ExchangeCost, Step, drain
from .fused_exchange import fill_fused, fused_buffer
from .parameter import ExchangedParameter
from .reduction import Reduction


class Bf16Exchange:
    """Exchanges one group of parameters in bfloat16.

    Args:
        comm: The communicator.
        name: Stable name of the group.
        parameters: The group.
        reduction: Sum or mean.
    """

    def __init__(
        self,
        comm: Communicator,
        name: str,
        parameters: tuple[ExchangedParameter, ...],
        reduction: Reduction,
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.cost = ExchangeCost()
        self._comm = comm
        self._reduction = reduction
        self._buffer = fused_buffer(parameters, multiple=comm.size)
        self._handle: Handle | None = None
        self._sums = self._buffer

    def start(self, step: Step) -> None:
        """Send each rank its share of the gradients."""
        started_s = time.perf_counter()
        size = self._comm.size
        fill_fused(self._buffer, self.parameters, step)
        shares = self._buffer.to(torch.bfloat16).view(size, -1).view(torch.uint8)  # [P, 2 S]
        ones = [1] * size
        self._handle = self._comm.alltoall(
            shares, ones, ones, name=f"sylvie.grad.{self.name}.share"
        )
        self.cost.count(2 * self._buffer.numel(), 2 * 2 * self._buffer.numel() * (size - 1) // size)
        self.cost.selection_s += time.perf_counter() - started_s

    def proceed(self) -> None:
        """Sum this rank's share, and send the sums round."""
        assert self._handle is not None, "proceed comes after start"
        handle, self._handle = self._handle, None
        shares = self.cost.wait(handle).view(torch.bfloat16)  # [P, S]
        total = shares.sum(dim=0, dtype=torch.float32) * self._reduction.scale(self._comm.size)
        self._handle = self._comm.allgather(
            total.to(torch.bfloat16).view(torch.uint8), name=f"sylvie.grad.{self.name}.sum"
        )

    def wait(self) -> list[str]:
        """Wait; an Inf or a NaN is a gradient like any other here, as with Horovod."""
        assert self._handle is not None, "wait comes after proceed"
        handle, self._handle = self._handle, None
        self._sums = self.cost.wait(handle).view(torch.bfloat16)  # [P S]
        return []

    def decode(self, num_active: int) -> None:
        """Copy the sums into the gradients."""
        started_s = time.perf_counter()
        sums = self._sums.to(self._buffer.dtype)
        correction = self._reduction.correction(self._comm.size, num_active)
        if correction != 1.0:
            sums.mul_(correction)
        end = 0
        for parameter in self.parameters:
            parameter.store(sums[end : end + parameter.num_elements])
            end += parameter.num_elements
        self.cost.decoding_s += time.perf_counter() - started_s

    def commit(self) -> None:
        """Do nothing: no step leaves anything."""

    def revert(self) -> None:
        """Forget what came."""
        handle, self._handle = self._handle, None
        drain(handle)
