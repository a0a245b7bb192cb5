"""Dense exchange of several small parameters as one vector.

Biases and norms are too small to be worth a selection, or a message each. They travel in float32
(float64 where a parameter is), which also serves bfloat16 parameters, that Horovod cannot sum.

Messages: one allreduce per step, of 4 bytes an element.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from ..comm.protocol import Communicator, Handle
from .exchange import ExchangeCost, Step, drain, ring_allreduce_bytes
from .feedback import Feedback
from .parameter import ExchangedParameter
from .reduction import Reduction


class FusedExchange:
    """Exchanges one group of parameters by one allreduce.

    A parameter alone travels in its own gradient's memory, where its layout and dtype allow that:
    `grad` then holds the sum already in `wait`.

    Args:
        comm: The communicator.
        name: Stable name of the group.
        parameters: The group.
        reduction: Sum or mean.
        feedback: Of each parameter that travels sparse in other plans, else None: what it has
            pending is sent too, and is then no more.
        rate_of: Gives a parameter's learning rate, for residuals in its units; else None.
    """

    def __init__(
        self,
        comm: Communicator,
        name: str,
        parameters: tuple[ExchangedParameter, ...],
        reduction: Reduction,
        feedback: tuple[Feedback | None, ...] = (),
        rate_of: Callable[[ExchangedParameter], float] | None = None,
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.cost = ExchangeCost()
        self._comm = comm
        self._reduction = reduction
        self._rate_of = rate_of
        self._sizes = [parameter.num_elements for parameter in parameters]
        self._own_buffer: Tensor | None = None  # made when it is needed
        self._buffer = torch.empty(0)
        self._handle: Handle | None = None
        self._sent: list[Feedback] = []  # of this step: what of it was pending
        feedback = feedback or (None,) * len(parameters)
        self._pending = [
            (parameter, each)
            for parameter, each in zip(parameters, feedback, strict=True)
            if each is not None
        ]

    @property
    def payload_bytes(self) -> int:
        """Bytes that this rank handed over in the newest step."""
        return self._buffer.nbytes

    def start(self, step: Step) -> None:
        """Copy the gradients into one vector and submit it."""
        started_s = time.perf_counter()
        self._buffer = self._filled(step)
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
        handle, self._handle = self._handle, None
        self.cost.wait(handle)
        return nonfinite_sums(self._buffer, self.parameters, self._sizes)

    def decode(self, num_active: int) -> None:
        """Copy the sums into the gradients."""
        started_s = time.perf_counter()
        correction = self._reduction.correction(self._comm.size, num_active)
        if correction != 1.0:
            self._buffer.mul_(correction)
        if self._buffer is self._own_buffer:
            for parameter, flat in zip(
                self.parameters, self._buffer.split(self._sizes), strict=True
            ):
                parameter.store(flat)
        self.cost.decoding_s += time.perf_counter() - started_s

    def commit(self) -> None:
        """Keep nothing pending of what was sent."""
        for feedback in self._sent:
            feedback.flush()
        # Without a velocity nothing will be pending again until another plan
        done = {id(each) for each in self._sent if each.velocity is None}
        self._pending = [each for each in self._pending if id(each[1]) not in done]
        self._sent.clear()

    def revert(self) -> None:
        """Forget what came."""
        handle, self._handle = self._handle, None
        drain(handle)
        self._sent.clear()

    def _filled(self, step: Step) -> Tensor:
        """Return the vector to sum, [n]: the gradient itself, or a buffer with all of them."""
        if len(self.parameters) == 1 and not self._pending and not step.joined:
            flat = _sole_gradient(self.parameters[0])
            if flat is not None:
                return flat if step.clip == 1.0 else flat.mul_(step.clip)
        if self._own_buffer is None:
            self._own_buffer = fused_buffer(self.parameters)
        fill_fused(self._own_buffer, self.parameters, step)
        self._add_pending(self._own_buffer, step)
        return self._own_buffer

    def _add_pending(self, buffer: Tensor, step: Step) -> None:
        """Add what is pending to buffer, [n]; what is frozen, or has no batch, keeps it."""
        if step.joined or not self._pending:
            return
        places = {
            id(parameter): place
            for parameter, place in zip(self.parameters, buffer.split(self._sizes), strict=True)
        }
        for parameter, feedback in self._pending:
            if parameter.tensor.requires_grad:
                place = places[id(parameter)]
                if self._rate_of is not None:
                    feedback.follow_rate(self._rate_of(parameter))
                place.copy_(feedback.whole(place, 1.0 / step.loss_scale))
                place.mul_(step.loss_scale)
                self._sent.append(feedback)


def _sole_gradient(parameter: ExchangedParameter) -> Tensor | None:
    """Return a gradient, [D], that can be summed where it is, else None."""
    grad = parameter.tensor.grad
    summable = parameter.tensor.dtype in {torch.float32, torch.float64}
    return parameter.writable_gradient() if grad is not None and summable else None


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
