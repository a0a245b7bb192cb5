"""Sparse exchange of one group in two phases, whose traffic does not grow with the ranks.

Each parameter's elements are dealt to the ranks as owners (`ops/shares.py`). Every rank selects
the K/P largest elements of each share, and an alltoall brings them to the owner of the share. It
sums them up, adds what it kept, and selects again; an allgather brings its sums to all ranks. What
a rank does not send stays in its residual, what an owner does not send in its owner residual: no
gradient is lost.

Messages: per step one alltoall and one allgather of about 4 K/P bytes to each of P-1 ranks, with
bfloat16 values: together 8 K (P-1)/P bytes, against the 4 K (P-1) of one allgather.

Shapes: P ranks and shares, B bytes of a row, D elements of a parameter, S of a share, K selected.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from ..comm.protocol import Communicator, Handle
from ..ops.shares import add_shares
from .compression import TopK
from .exchange import ExchangeCost, Step, drain, gradient_norms
from .feedback import Feedback
from .owner_residual import OwnerResidual
from .parameter import ExchangedParameter
from .payload import Header, open_payload, seal, wrong_payload
from .reduction import Reduction
from .share_owner import ShareOwner
from .share_payload import SharesLayout, make_shares_layout


class TwoPhaseExchange:
    """Exchanges the selected elements of one group by way of their owners.

    Args:
        comm: The communicator.
        name: Stable name of the group.
        parameters: The group, on one device.
        feedback: Of each parameter.
        owners: The owner residual of this rank's share of each parameter.
        policy: Density and dtypes.
        reduction: Sum or mean.
        rate_of: Gives a parameter's learning rate, for residuals in its units.
        description: What else ranks must agree on; it enters the plan hash.
    """

    def __init__(
        self,
        comm: Communicator,
        name: str,
        parameters: tuple[ExchangedParameter, ...],
        feedback: tuple[Feedback, ...],
        *,
        owners: tuple[OwnerResidual, ...],
        policy: TopK,
        reduction: Reduction,
        rate_of: Callable[[ExchangedParameter], float],
        description: str,
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.selected = parameters
        self.feedback = feedback
        self.owners = owners
        self.cost = ExchangeCost()
        self._comm = comm
        self._policy = policy
        self._reduction = reduction
        self._rate_of = rate_of
        self._description = f"{description} {[p.describe() for p in parameters]}"
        by_rate = policy.residual_units == "learning_rate"
        self._owner = ShareOwner(
            comm.rank, name, parameters, owners, rate_of=rate_of if by_rate else None
        )
        self._density = 0.0
        self._use_density(policy.density_at(0))
        self._handle: Handle | None = None
        self._step = Step(0)
        self._sends = False
        self._headers: list[Header] = []  # of the owners' sums
        self.gradient_norms: list[float] = []  # of a sampled step, by parameter

    @property
    def layout(self) -> SharesLayout:
        """Where each parameter's selected elements are in the rows."""
        return self._layout

    @property
    def payload_bytes(self) -> int:
        """Bytes that this rank handed over in the newest step."""
        return (self._comm.size + 1) * self._layout.nbytes

    def start(self, step: Step) -> None:
        """Select from each share, and send each owner its row."""
        if step.sampled:
            self.gradient_norms = gradient_norms(self.parameters, step)
        started_s = time.perf_counter()
        self._step = step
        self._use_density(self._policy.density_at(step.number))
        header = Header(empty=True)
        # What was frozen since has no gradient, and must not move by what it has pending
        self._sends = not step.joined and any(p.tensor.requires_grad for p in self.parameters)
        if self._sends:
            header = Header(num_nonfinite=self._select(step))
        for row, layout in zip(self._rows, self._layout.rows, strict=True):
            seal(row, layout, header, step=step.number, rank=self._comm.rank)
        self.cost.selection_s += time.perf_counter() - started_s
        ones = [1] * self._comm.size
        self._handle = self._comm.alltoall(
            self._rows, ones, ones, name=f"sylvie.grad.{self.name}.share"
        )
        # A row to each other rank, and then the sums to each
        bytes_sent = 2 * (self._comm.size - 1) * self._layout.nbytes
        self.cost.count(self.payload_bytes, bytes_sent)

    def proceed(self) -> None:
        """Wait for the ranks' rows, sum this rank's share, and send the largest sums round."""
        assert self._handle is not None, "proceed comes after start"
        handle, self._handle = self._handle, None
        rows = self.cost.wait(handle).view(self._comm.size, self._layout.nbytes)  # [P, B]
        started_s = time.perf_counter()
        sums = self._owner.answer(rows, self._step.number)  # [B]
        self.cost.selection_s += time.perf_counter() - started_s
        self._handle = self._comm.allgather(sums, name=f"sylvie.grad.{self.name}.sum")

    def wait(self) -> list[str]:
        """Wait for the owners' sums, check them, and say what was not finite.

        Raises:
            PayloadError: A payload is wrong; on every rank, also where it came to one owner only.
        """
        assert self._handle is not None, "wait comes after proceed"
        handle, self._handle = self._handle, None
        gathered = self.cost.wait(handle)
        self._gathered = gathered.view(self._comm.size, self._layout.nbytes)  # [P, B]
        step = self._step.number
        self._headers = [
            open_payload(row, self._layout.sums, step=step, rank=owner, group=self.name)
            for owner, row in enumerate(self._gathered)
        ]
        self._raise_if_refused()
        names = ", ".join(f"'{parameter.name}'" for parameter in self.parameters)
        faults = [
            f"{names} on rank {rank} ({header.num_nonfinite} elements)"
            for rank, header in enumerate(self._owner.received)
            if header.num_nonfinite
        ]
        return faults + [
            f"{names} in the sum on rank {owner} ({header.num_nonfinite} elements)"
            for owner, header in enumerate(self._headers)
            if header.num_nonfinite
        ]

    def decode(self, num_active: int) -> None:
        """Write all owners' sums into the gradients."""
        started_s = time.perf_counter()
        scale = self._reduction.scale(max(1, num_active)) * self._step.loss_scale
        skip = [owner for owner, header in enumerate(self._headers) if header.empty]
        for number, parameter in enumerate(self.parameters):
            out = parameter.writable_gradient()
            target = out
            if target is None:
                target = torch.empty(parameter.num_elements, device=self._rows.device)
            self._add(self._gathered, number, scale, target, skip)
            if out is None:
                parameter.store(target)
        self.cost.decoding_s += time.perf_counter() - started_s

    def commit(self) -> None:
        """Keep what was not sent, here and of the sums."""
        for feedback in self.feedback:
            feedback.commit()
        self._owner.commit()
        self._headers = []

    def revert(self) -> None:
        """Take back what was selected, here and of the sums."""
        for feedback in self.feedback:
            feedback.revert()
        self._owner.revert()
        handle, self._handle = self._handle, None
        drain(handle)
        self._headers = []

    def sent_norms(self) -> list[float]:
        """Return the norm of what this rank sent of each parameter in the last step."""
        if not self._sends:
            return [0.0] * len(self.parameters)
        norms = []
        for number, parameter in enumerate(self.parameters):
            sent = torch.empty(parameter.num_elements, device=self._rows.device)
            self._add(self._rows, number, 1.0, sent, [])
            norms.append(float(torch.linalg.vector_norm(sent)))
        return norms

    def _select(self, step: Step) -> int:
        num_nonfinite = 0
        for number, (parameter, feedback) in enumerate(
            zip(self.parameters, self.feedback, strict=True)
        ):
            ks, offset = self._layout.counts[number], self._layout.offsets[number]
            dtype = self._layout.value_dtype
            if not parameter.tensor.requires_grad:
                feedback.select_no_shares(ks=ks, rows=self._rows, offset=offset, dtype=dtype)
                continue
            if self._policy.residual_units == "learning_rate":
                feedback.follow_rate(self._rate_of(parameter))
            report = feedback.select_shares(
                parameter.gradient(),
                ks=ks,
                scale=step.clip / step.loss_scale,
                rows=self._rows,
                offset=offset,
                dtype=dtype,
            )
            num_nonfinite += report.num_nonfinite
        return num_nonfinite

    def _raise_if_refused(self) -> None:
        if self._owner.error is not None:
            raise self._owner.error
        for owner, header in enumerate(self._headers):
            if header.wrong_rank is not None:
                raise wrong_payload(
                    header.wrong_rank,
                    self.name,
                    self._step.number,
                    f"rank {owner}, which it was sent to, could not use it, and says why",
                )

    def _add(self, rows: Tensor, number: int, scale: float, out: Tensor, skip: list[int]) -> None:
        """Write one parameter's selected elements of all shares. rows: [P, B], out: [D]."""
        add_shares(
            rows,
            offset=self._layout.offsets[number],
            ks=self._layout.counts[number],
            value_dtype=self._layout.value_dtype,
            scale=scale,
            out=out,
            skip=skip,
        )

    def _use_density(self, density: float) -> None:
        if density == self._density:
            return
        self._density = density
        num_ranks = self._comm.size
        self._layout = make_shares_layout(
            [parameter.num_elements for parameter in self.parameters],
            density,
            num_ranks,
            self._policy.value_dtype,
            description=self._description,
        )
        self._rows = torch.zeros(
            num_ranks,
            self._layout.nbytes,
            dtype=torch.uint8,
            device=self.parameters[0].tensor.device,
        )
        self._owner.use_layout(self._layout)
