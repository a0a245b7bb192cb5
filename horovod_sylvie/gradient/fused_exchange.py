"""Dense exchange of several small parameters as one vector.

Biases and norms are too small to be worth a selection, or a message each. They travel in float32
(float64 where a parameter is), which also serves bfloat16 parameters, that Horovod cannot sum.

Messages: one allreduce per step, of 4 bytes an element.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from ..comm.protocol import Communicator, Handle
from .exchange import ExchangeCost, Step, drain, ring_allreduce_bytes
from .parameter import ExchangedParameter
from .reduction import Reduction


class FusedExchange:
    """Exchanges one group of parameters by one allreduce.

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
        self._sizes = [parameter.num_elements for parameter in parameters]
        self._buffer = fused_buffer(parameters)
        self._handle: Handle | None = None

    def start(self, step: Step) -> None:
        """Copy the gradients into one vector and submit it."""
        started_s = time.perf_counter()
        fill_fused(self._buffer, self.parameters, step)
        self._handle = self._comm.allreduce_(
            self._buffer,
            name=f"sylvie.grad.{self.name}",
            prescale=self._reduction.prescale,
            postscale=self._reduction.postscale(self._comm.size),
        )
        nbytes = self._buffer.nbytes
        self.cost.count(nbytes, ring_allreduce_bytes(nbytes, self._comm.size))
        self.cost.selection_s += time.perf_counter() - started_s

    def proceed(self) -> None:
        """Do nothing: there is one phase."""

    def wait(self) -> list[str]:
        """Wait, and say whether the sum is finite."""
        assert self._handle is not None, "wait comes after start"
        started_s = time.perf_counter()
        handle, self._handle = self._handle, None
        handle.wait()
        self.cost.waiting_s += time.perf_counter() - started_s
        return nonfinite_sums(self._buffer, self.parameters, self._sizes)

    def apply(self, num_active: int) -> None:
        """Copy the sums into the gradients."""
        started_s = time.perf_counter()
        correction = self._reduction.correction(self._comm.size, num_active)
        if correction != 1.0:
            self._buffer.mul_(correction)
        for parameter, flat in zip(self.parameters, self._buffer.split(self._sizes), strict=True):
            parameter.store(flat)
        self.cost.decoding_s += time.perf_counter() - started_s

    def revert(self) -> None:
        """Forget what came."""
        handle, self._handle = self._handle, None
        drain(handle)


def fused_buffer(parameters: tuple[ExchangedParameter, ...], *, multiple: int = 1) -> Tensor:
    """Return a vector that holds all gradients of a group.

    Args:
        parameters: The group, on one device.
        multiple: The length is rounded up to a multiple of it; what is beyond stays zero.

    Returns:
        Zeros. [n], float32, or float64 where a parameter is.
    """
    double = any(parameter.tensor.dtype == torch.float64 for parameter in parameters)
    length = -(-sum(parameter.num_elements for parameter in parameters) // multiple) * multiple
    device = parameters[0].tensor.device
    return torch.zeros(length, dtype=torch.float64 if double else torch.float32, device=device)


def fill_fused(buffer: Tensor, parameters: tuple[ExchangedParameter, ...], step: Step) -> None:
    """Copy a group's gradients into its vector, zeros where there is none. buffer: [n]."""
    end = 0
    for parameter in parameters:
        place = buffer[end : end + parameter.num_elements]
        end += parameter.num_elements
        gradient = None if step.joined else parameter.gradient()
        if gradient is None:
            place.zero_()
        else:
            place.copy_(gradient)
    if step.clip != 1.0:
        buffer.mul_(step.clip)


def nonfinite_sums(
    buffer: Tensor, parameters: tuple[ExchangedParameter, ...], sizes: list[int]
) -> list[str]:
    """Describe the parameters of a group whose sum is not finite. buffer: [n]."""
    # One pass for the usual case: Inf and NaN survive a sum; finite elements may overflow it
    if bool(torch.isfinite(buffer.sum())):
        return []
    length = sum(sizes)
    return [
        f"'{parameter.name}' (the sum over ranks)"
        for parameter, flat in zip(parameters, buffer[:length].split(sizes), strict=True)
        if not bool(torch.isfinite(flat).all())
    ]
