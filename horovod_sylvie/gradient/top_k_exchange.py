"""Sparse exchange of one group: the K largest elements of each parameter, with error feedback.

Messages: one allgather per step, of one payload of a fixed size (`payload.py`): about 4 K bytes
to each of P-1 ranks with bfloat16 values, whatever D is.

Shapes: P ranks, B bytes of the payload, D elements of a parameter, K selected.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from ..comm.protocol import Communicator, Handle
from ..ops.top_k import add_selected, restore_selected, section_bytes
from ..planning.plan import num_selected
from .compression import TopK
from .exchange import ExchangeCost, Step, drain, gradient_norms, ring_allgather_bytes
from .feedback import Feedback
from .parameter import ExchangedParameter
from .payload import Header, PayloadLayout, make_layout, open_payload, seal
from .reduction import Reduction
from .riders import Riders


class TopKExchange:
    """Exchanges the selected elements of one group by one allgather.

    Args:
        comm: The communicator.
        name: Stable name of the group.
        parameters: The group, on one device.
        feedback: Of each parameter.
        policy: Density and dtypes.
        reduction: Sum or mean.
        rate_of: Gives a parameter's learning rate, for residuals in its units.
        description: What else ranks must agree on; it enters the plan hash.
        riders: Small parameters that travel whole in the same payload.
    """

    def __init__(
        self,
        comm: Communicator,
        name: str,
        parameters: tuple[ExchangedParameter, ...],
        feedback: tuple[Feedback, ...],
        *,
        policy: TopK,
        reduction: Reduction,
        rate_of: Callable[[ExchangedParameter], float],
        description: str,
        riders: tuple[ExchangedParameter, ...] = (),
    ) -> None:
        self.name = name
        self.parameters = (*parameters, *riders)
        self.selected = parameters
        self.feedback = feedback
        self.cost = ExchangeCost()
        self._comm = comm
        self._policy = policy
        self._reduction = reduction
        self._rate_of = rate_of
        self._riders = Riders(riders)
        self._description = f"{description} {[p.describe() for p in self.parameters]}"
        self._density = 0.0
        self._use_density(policy.density_at(0))
        self._handle: Handle | None = None
        self._step = Step(0)
        self._sends = False
        self._headers: list[Header] = []
        self.gradient_norms: list[float] = []  # of a sampled step, by parameter

    @property
    def layout(self) -> PayloadLayout:
        """Where each parameter's selected elements are in the payload."""
        return self._layout

    @property
    def payload_bytes(self) -> int:
        """Bytes that this rank handed over in the newest step."""
        return self._layout.nbytes

    def start(self, step: Step) -> None:
        """Select, and send the payload."""
        if step.sampled:
            self.gradient_norms = gradient_norms(self.selected, step)
        started_s = time.perf_counter()
        self._step = step
        self._use_density(self._policy.density_at(step.number))
        header = Header(empty=True)
        # What was frozen since has no gradient, and must not move by what it has pending
        self._sends = not step.joined and any(p.tensor.requires_grad for p in self.selected)
        if self._sends:
            header = Header(num_nonfinite=self._select(step))
        self._riders.fill(self._whole(self._payload), step)
        seal(self._payload, self._layout, header, step=step.number, rank=self._comm.rank)
        self.cost.selection_s += time.perf_counter() - started_s
        self._handle = self._comm.allgather(self._payload, name=f"sylvie.grad.{self.name}")
        nbytes = self._layout.nbytes
        self.cost.count(nbytes, ring_allgather_bytes(nbytes, self._comm.size))

    def proceed(self) -> None:
        """Do nothing: there is one phase."""

    def wait(self) -> list[str]:
        """Wait, check every payload, and say whose gradients were not finite."""
        assert self._handle is not None, "wait comes after start"
        handle, self._handle = self._handle, None
        gathered = self.cost.wait(handle)
        self._gathered = gathered.view(self._comm.size, self._layout.nbytes)  # [P, B]
        self._headers = [
            open_payload(row, self._layout, step=self._step.number, rank=rank, group=self.name)
            for rank, row in enumerate(self._gathered)
        ]
        names = ", ".join(f"'{parameter.name}'" for parameter in self.selected)
        faults = [
            f"{names} on rank {rank} ({header.num_nonfinite} elements)"
            for rank, header in enumerate(self._headers)
            if header.num_nonfinite
        ]
        return faults + self._riders.receive(self._whole(self._gathered))

    def decode(self, num_active: int) -> None:
        """Sum all payloads into the gradients."""
        started_s = time.perf_counter()
        mean = self._reduction.scale(max(1, num_active))
        scale = mean * self._step.loss_scale
        skip = [rank for rank, header in enumerate(self._headers) if header.empty]
        for number, parameter in enumerate(self.selected):
            out = parameter.writable_gradient()
            target = out
            if target is None:
                target = torch.empty(parameter.num_elements, device=self._payload.device)
            add_selected(
                self._gathered,
                offset=self._layout.offsets[number],
                num_elements=parameter.num_elements,
                k=self._layout.num_selected[number],
                value_dtype=self._layout.value_dtype,
                scale=scale,
                out=target,
                skip=skip,
            )
            if out is None:
                parameter.store(target)
        self._riders.decode(mean)  # they travel in the unit of the gradients
        self.cost.decoding_s += time.perf_counter() - started_s

    def commit(self) -> None:
        """Keep what was not sent."""
        for feedback in self.feedback:
            feedback.commit()
        self._headers = []

    def revert(self) -> None:
        """Take back what was selected."""
        for feedback in self.feedback:
            feedback.revert()
        handle, self._handle = self._handle, None
        drain(handle)
        self._headers = []

    def sent_norms(self) -> list[float]:
        """Return the norm of what this rank sent of each parameter in the last step."""
        if not self._sends:
            return [0.0] * len(self.selected)
        norms = []
        for number, parameter in enumerate(self.selected):
            sent = torch.zeros(parameter.num_elements, device=self._payload.device)
            restore_selected(
                self._section(number),
                num_elements=parameter.num_elements,
                k=self._layout.num_selected[number],
                value_dtype=self._layout.value_dtype,
                residual=sent,
            )
            norms.append(float(torch.linalg.vector_norm(sent)))
        return norms

    def _whole(self, payloads: Tensor) -> Tensor:
        """Return the bytes of what travels whole. payloads: [..., B]."""
        begin = self._layout.whole_begin
        return payloads[..., begin : begin + 4 * self._layout.num_whole]

    def _section(self, number: int) -> Tensor:
        """Return the bytes of one parameter's selected elements in this rank's payload."""
        start = self._layout.offsets[number]
        nbytes = section_bytes(
            self._layout.num_elements[number],
            self._layout.num_selected[number],
            self._layout.value_dtype,
        )
        return self._payload[start : start + nbytes]

    def _select(self, step: Step) -> int:
        num_nonfinite = 0
        for number, (parameter, feedback) in enumerate(
            zip(self.selected, self.feedback, strict=True)
        ):
            k, section = self._layout.num_selected[number], self._section(number)
            dtype = self._layout.value_dtype
            if not parameter.tensor.requires_grad:
                feedback.select_nothing(k=k, section=section, dtype=dtype)
                continue
            if self._policy.residual_units == "learning_rate":
                feedback.follow_rate(self._rate_of(parameter))
            report = feedback.select(
                parameter.gradient(),
                k=k,
                scale=step.clip / step.loss_scale,
                section=section,
                dtype=dtype,
            )
            num_nonfinite += report.num_nonfinite
        return num_nonfinite

    def _use_density(self, density: float) -> None:
        if density == self._density:
            return
        self._density = density
        num_elements = [parameter.num_elements for parameter in self.selected]
        self._layout = make_layout(
            num_elements,
            [num_selected(count, density) for count in num_elements],
            self._policy.value_dtype,
            num_whole=self._riders.num_elements,
            description=self._description,
        )
        self._payload = torch.zeros(
            self._layout.nbytes, dtype=torch.uint8, device=self.parameters[0].tensor.device
        )
