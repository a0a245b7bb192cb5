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
from collections.abc import Sequence

import torch
from torch import Tensor

from ..comm.protocol import Communicator
from ..ops.top_k_many import Selection, ShareSections, add_many
from .feedback import Feedback
from .owner_residual import OwnerResidual
from .parameter import ExchangedParameter
from .payload import Header, open_payload, receive_payloads, seal_rows, wrong_payload
from .selected_exchange import SelectedExchange, SelectionOptions
from .share_owner import ShareOwner
from .share_payload import SharesLayout, make_shares_layout


class TwoPhaseExchange(SelectedExchange):
    """Exchanges the selected elements of one group by way of their owners.

    Args:
        comm: The communicator.
        name: Stable name of the group.
        selected: The group, on one device.
        feedback: Of each parameter.
        options: How.
        owners: The owner residual of this rank's share of each parameter.
    """

    def __init__(
        self,
        comm: Communicator,
        name: str,
        selected: tuple[ExchangedParameter, ...],
        feedback: tuple[Feedback, ...],
        options: SelectionOptions,
        *,
        owners: tuple[OwnerResidual, ...],
    ) -> None:
        super().__init__(comm, name, selected, feedback, options)
        self.owners = owners
        self._owner = ShareOwner(comm.rank, name, selected, owners, rate_of=self._rate_of)
        self._follow_density(0)

    @property
    def layout(self) -> SharesLayout:
        """Where each parameter's selected elements are in the rows."""
        return self._layout

    @property
    def num_selected(self) -> tuple[int, ...]:
        """K of each parameter, all shares together."""
        return self._layout.num_selected

    @property
    def payload_bytes(self) -> int:
        """Bytes that this rank handed over in the newest step."""
        return (self._comm.size + 1) * self._layout.nbytes

    def proceed(self) -> None:
        """Wait for the ranks' rows, sum this rank's share, and send the largest sums round."""
        received = self._receive(missing="proceed comes after start")
        rows = received.view(self._comm.size, self._layout.nbytes)  # [P, B]
        started_s = time.perf_counter()
        sums = self._owner.answer(rows, self._step.number)  # [B]
        self.cost.selection_s += time.perf_counter() - started_s
        self._handle = self._comm.allgather(sums, name=f"sylvie.grad.{self.name}.sum")

    def wait(self) -> list[str]:
        """Wait for the owners' sums, check them, and say what was not finite.

        Raises:
            PayloadError: A payload is wrong; on every rank, also where it came to one owner only.
        """
        gathered = self._receive(missing="wait comes after proceed")
        self._gathered = gathered.view(self._comm.size, self._layout.nbytes)  # [P, B]
        step = self._step.number
        self._headers = [
            open_payload(row, self._layout.sums, step=step, rank=owner, group=self.name)
            for owner, row in enumerate(receive_payloads(self._gathered))
        ]
        self._raise_if_refused()
        faults = self._faults(self._owner.received, "on rank")
        return faults + self._faults(self._headers, "in the sum on rank")

    def commit(self) -> None:
        """Keep what was not sent, here and of the sums."""
        super().commit()
        self._owner.commit()

    def revert(self) -> None:
        """Take back what was selected, here and of the sums."""
        self._owner.revert()
        super().revert()

    def pending(self, number: int) -> Tensor:
        """Return what this rank has not sent of one parameter, here and as an owner. [D]."""
        whole = self.feedback[number].residual.clone()
        self.owners[number].add_to(whole)
        return whole

    def _use_density(self, density: float) -> None:
        num_ranks = self._comm.size
        self._layout = make_shares_layout(
            [parameter.num_elements for parameter in self.selected],
            density,
            num_ranks,
            self._policy.value_dtype,
            description=self._description,
        )
        self._rows = torch.zeros(
            num_ranks, self._layout.nbytes, dtype=torch.uint8, device=self._device
        )
        self._owner.use_layout(self._layout)

    def _selection(
        self, feedback: Feedback, number: int, gradient: Tensor | None, scale: float
    ) -> Selection:
        return feedback.prepare(
            gradient,
            ks=self._layout.counts[number],
            scale=scale,
            rows=self._rows,
            offset=self._layout.offsets[number],
            dtype=self._layout.value_dtype,
        )

    def _seal(self, header: Header) -> None:
        seal_rows(
            self._rows, self._layout.rows, header, step=self._step.number, rank=self._comm.rank
        )

    def _submit(self) -> None:
        ones = [1] * self._comm.size
        self._handle = self._comm.alltoall(
            self._rows, ones, ones, name=f"sylvie.grad.{self.name}.share"
        )
        # A row to each other rank, and then the sums to each
        self.cost.count(self.payload_bytes, 2 * (self._comm.size - 1) * self._layout.nbytes)

    def _sections(
        self, payloads: Tensor, number: int, out: Tensor, skip: Sequence[int]
    ) -> ShareSections:
        return ShareSections(
            payloads,
            self._layout.offsets[number],
            self._layout.counts[number],
            self._layout.value_dtype,
            out,
            skip,
        )

    def _sent(self, number: int) -> Tensor:
        sent = torch.empty(self.selected[number].num_elements, device=self._device)
        add_many([self._sections(self._rows, number, sent, ())], scale=1.0)
        return sent

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
