"""What both sparse exchanges of a group have in common; how payloads travel is theirs.

Shapes: P ranks, B bytes of a payload, D elements of a parameter, K selected.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..comm.protocol import Communicator, Handle
from ..ops.sections import Sections
from ..ops.top_k_many import Selection, add_many, select_many
from .compression import TopK
from .exchange import ExchangeCost, Step, drain, gradient_norms
from .feedback import Feedback, commit_all
from .parameter import ExchangedParameter
from .payload import Header
from .reduction import Reduction


@dataclass(frozen=True)
class SelectionOptions:
    """How a group's elements are selected, and what becomes of them.

    Attributes:
        policy: Density and dtypes.
        reduction: Sum or mean.
        rate_of: Gives a parameter's learning rate, for residuals in its units.
        description: What else ranks must agree on; it enters the plan hash.
    """

    policy: TopK
    reduction: Reduction
    rate_of: Callable[[ExchangedParameter], float]
    description: str


class SelectedExchange(ABC):
    """Exchanges the selected elements of one group.

    A subclass calls `_follow_density(0)` when it is made.

    Args:
        comm: The communicator.
        name: Stable name of the group.
        selected: The parameters that are selected from, on one device.
        feedback: Of each of them.
        options: How.
        others: Parameters of the group that travel in another way.

    Attributes:
        gradient_norms: Of a sampled step, by selected parameter. [n], float64
    """

    def __init__(
        self,
        comm: Communicator,
        name: str,
        selected: tuple[ExchangedParameter, ...],
        feedback: tuple[Feedback, ...],
        options: SelectionOptions,
        others: tuple[ExchangedParameter, ...] = (),
    ) -> None:
        self.name = name
        self.parameters = (*selected, *others)
        self.selected = selected
        self.feedback = feedback
        self.cost = ExchangeCost()
        self.gradient_norms = torch.zeros(0, dtype=torch.float64)
        self._comm = comm
        self._policy = options.policy
        self._reduction = options.reduction
        by_rate = options.policy.residual_units == "learning_rate"
        self._rate_of = options.rate_of if by_rate else None
        described = [each.describe() for each in self.parameters]
        self._description = f"{options.description} {described}"
        self._device = selected[0].tensor.device
        self._handle: Handle | None = None
        self._step = Step(0)
        self._sends = False
        self._headers: list[Header] = []  # of what `_gathered` holds
        self._gathered = torch.empty(0)
        self._density = 0.0

    @property
    @abstractmethod
    def num_selected(self) -> tuple[int, ...]:
        """K of each selected parameter."""

    @property
    @abstractmethod
    def payload_bytes(self) -> int:
        """Bytes that this rank handed over in the newest step."""

    @abstractmethod
    def _use_density(self, density: float) -> None:
        """Lay payloads out for a density."""

    @abstractmethod
    def _selection(
        self, feedback: Feedback, number: int, gradient: Tensor | None, scale: float
    ) -> Selection:
        """Say what is selected from one parameter's feedback, and where it goes."""

    @abstractmethod
    def _seal(self, header: Header) -> None:
        """Finish the payloads whose selected elements are written."""

    @abstractmethod
    def _submit(self) -> None:
        """Send the payloads, and count them."""

    @abstractmethod
    def proceed(self) -> None:
        """Submit what depends on the first answer, if anything does; may wait for that."""

    @abstractmethod
    def wait(self) -> list[str]:
        """Wait, check what came, and say what was not finite; the same on every rank."""

    @abstractmethod
    def _sections(
        self, payloads: Tensor, number: int, out: Tensor, skip: Sequence[int]
    ) -> Sections:
        """Return one parameter's sections in payloads, [P, B], which its gradient is made of.

        out: Where that goes, [D]. skip: Whose payloads are not read.
        """

    @abstractmethod
    def _sent(self, number: int) -> Tensor:
        """Return what this rank sent of one parameter in the last step, as a vector. [D]."""

    def start(self, step: Step) -> None:
        """Select, and send what was selected."""
        if step.sampled:
            self.gradient_norms = gradient_norms(self.selected, step)
        started_s = time.perf_counter()
        self._step = step
        self._follow_density(step.number)
        header = Header(empty=True)
        # What was frozen since has no gradient, and must not move by what it has pending
        self._sends = not step.joined and any(p.tensor.requires_grad for p in self.selected)
        if self._sends:
            header = Header(num_nonfinite=self._select(step))
        self._seal(header)
        self.cost.selection_s += time.perf_counter() - started_s
        self._submit()

    def decode(self, num_active: int) -> None:
        """Make the gradients of what came."""
        started_s = time.perf_counter()
        scale = self._reduction.scale(max(1, num_active)) * self._step.loss_scale
        skip = [rank for rank, header in enumerate(self._headers) if header.empty]
        sections, unwritable = [], []
        for number, parameter in enumerate(self.selected):
            out = parameter.writable_gradient()
            if out is None:
                out = torch.empty(parameter.num_elements, device=self._device)
                unwritable.append((parameter, out))
            sections.append(self._sections(self._gathered, number, out, skip))
        add_many(sections, scale=scale)
        for parameter, out in unwritable:
            parameter.store(out)
        self.cost.decoding_s += time.perf_counter() - started_s

    def commit(self) -> None:
        """Keep what was not sent."""
        commit_all(self.feedback)
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
        return [
            float(torch.linalg.vector_norm(self._sent(number)))
            for number in range(len(self.selected))
        ]

    def pending(self, number: int) -> Tensor:
        """Return what this rank has not sent of one parameter; not to be changed. [D]."""
        return self.feedback[number].residual

    def _receive(self, *, missing: str) -> Tensor:
        """Wait for the operation in flight. `missing`: what came before it should have."""
        assert self._handle is not None, missing
        handle, self._handle = self._handle, None
        return self.cost.wait(handle)

    def _faults(self, headers: Sequence[Header], where: str) -> list[str]:
        """Describe the group's elements that were not finite, by the rank that says so."""
        names = ", ".join(f"'{parameter.name}'" for parameter in self.selected)
        return [
            f"{names} {where} {rank} ({header.num_nonfinite} elements)"
            for rank, header in enumerate(headers)
            if header.num_nonfinite
        ]

    def _select(self, step: Step) -> int | Tensor:
        """Select from all parameters; return how many elements were not finite.

        A tensor where reading it would stop backward.
        """
        scale = step.clip / step.loss_scale
        feedbacks, selections = [], []
        for number, parameter in enumerate(self.selected):
            feedback = self.feedback[number]
            if not parameter.tensor.requires_grad:
                # It sends zeros, of another one's, and keeps what it has pending
                feedback = Feedback(parameter.num_elements, self._device, momentum=None)
            elif self._rate_of is not None:
                feedback.follow_rate(self._rate_of(parameter))
            gradient = parameter.gradient() if parameter.tensor.requires_grad else None
            feedbacks.append(feedback)
            selections.append(self._selection(feedback, number, gradient, scale))
        report = select_many(selections)
        for feedback, met in zip(feedbacks, report.each, strict=True):
            feedback.remember(met)
        return report.num_nonfinite

    def _follow_density(self, step: int) -> None:
        density = self._policy.density_at(step)
        if density != self._density:
            self._density = density
            self._use_density(density)
