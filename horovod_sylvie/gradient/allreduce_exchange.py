"""Dense exchange of each parameter by itself, through a compressor with Horovod's interface.

Messages: one allreduce per parameter and step, of the compressed gradient. Without compression
the sum is taken in place, in the gradient's own memory.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..comm.protocol import Communicator, Handle
from .compression import Compressor
from .exchange import ExchangeCost, Step, drain, ring_allreduce_bytes
from .parameter import ExchangedParameter
from .reduction import Reduction


class _InFlight(NamedTuple):
    """One parameter's allreduce.

    Attributes:
        compressed: What the compressor returned.
        context: What its `decompress` needs.
        wire: What is summed, in place: the elements of `compressed`, mostly its own memory. [n]
    """

    parameter: ExchangedParameter
    compressed: Tensor
    context: Any
    wire: Tensor
    handle: Handle | None


class AllreduceExchange:
    """Exchanges the parameters of one group, each by an allreduce, together.

    Args:
        comm: The communicator.
        name: Stable name of the group.
        parameters: The group.
        compressor: Horovod's interface.
        reduction: Sum or mean.
    """

    def __init__(
        self,
        comm: Communicator,
        name: str,
        parameters: tuple[ExchangedParameter, ...],
        compressor: Compressor,
        reduction: Reduction,
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.cost = ExchangeCost()
        self._comm = comm
        self._compressor = compressor
        self._reduction = reduction
        self._in_flight: list[_InFlight] = []

    def start(self, step: Step) -> None:
        """Compress each gradient and submit it; a parameter without one sends zeros."""
        started_s = time.perf_counter()
        nbytes = 0
        for parameter in self.parameters:
            gradient = _local_gradient(parameter, step)
            compressed, context = self._compressor.compress(gradient)
            wire = _wire_of(parameter, compressed)
            nbytes += wire.nbytes
            handle = self._comm.allreduce_(
                wire,
                name=f"sylvie.grad.{parameter.name}",
                prescale=self._reduction.prescale,
                postscale=self._reduction.postscale(self._comm.size),
            )
            self._in_flight.append(_InFlight(parameter, compressed, context, wire, handle))
        self.cost.count(nbytes, ring_allreduce_bytes(nbytes, self._comm.size))
        self.cost.selection_s += time.perf_counter() - started_s

    def proceed(self) -> None:
        """Do nothing: there is one phase."""

    def wait(self) -> list[str]:
        """Wait; an Inf or a NaN is a gradient like any other here, as with Horovod."""
        for number, flight in enumerate(self._in_flight):
            self._in_flight[number] = flight._replace(handle=None)
            assert flight.handle is not None, "wait comes once after start"
            self.cost.wait(flight.handle)
        return []

    def decode(self, num_active: int) -> None:
        """Decompress each sum into its gradient."""
        started_s = time.perf_counter()
        correction = self._reduction.correction(self._comm.size, num_active)
        for parameter, compressed, context, wire, _ in self._in_flight:
            if correction != 1.0:
                wire.mul_(correction)
            summed = compressed
            if wire.data_ptr() != compressed.data_ptr() or wire.dtype != compressed.dtype:
                summed = _like(parameter, wire, compressed)
            result = self._compressor.decompress(summed, context)
            if result is not parameter.tensor.grad:
                parameter.store(parameter.flatten(result.view_as(parameter.tensor)))
        self.revert()
        self.cost.decoding_s += time.perf_counter() - started_s

    def commit(self) -> None:
        """Do nothing: no step leaves anything."""

    def revert(self) -> None:
        """Forget what came."""
        for flight in self._in_flight:
            drain(flight.handle)
        self._in_flight.clear()


def _local_gradient(parameter: ExchangedParameter, step: Step) -> Tensor:
    tensor = parameter.tensor
    if step.joined or tensor.grad is None:
        zeros = torch.zeros_like(tensor, requires_grad=False)
        if tensor.grad is None:
            tensor.grad = zeros
        return zeros
    gradient = tensor.grad.to_dense() if tensor.grad.is_sparse else tensor.grad
    return gradient if step.clip == 1.0 else gradient * step.clip


def _wire_of(parameter: ExchangedParameter, compressed: Tensor) -> Tensor:
    """Return the elements of a compressed gradient as a vector that Horovod can sum: [n]."""
    same_shape = compressed.shape == parameter.tensor.shape
    flat = parameter.flatten(compressed) if same_shape else compressed.detach().reshape(-1)
    return flat.float() if flat.dtype == torch.bfloat16 else flat


def _like(parameter: ExchangedParameter, wire: Tensor, compressed: Tensor) -> Tensor:
    flat = wire.to(compressed.dtype)
    if compressed.shape == parameter.tensor.shape:
        return parameter.unflatten(flat)
    return flat.view(compressed.shape)
