"""A rank as an owner: it sums up its share of a group, and selects again from the sums.

Shapes: P ranks, B bytes of a row, S elements of a share.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..ops.sections import CorruptSectionError
from ..ops.top_k_many import RankSections, add_many, select_many
from .feedback import Feedback
from .owner_residual import OwnerResidual
from .parameter import ExchangedParameter
from .payload import Header, PayloadError, open_payload, receive_payloads, seal, wrong_payload
from .share_payload import SharesLayout


class ShareOwner:
    """Answers the ranks' rows to one owner with a payload of sums.

    Args:
        rank: This rank, whose number is also that of its share.
        group: Name of the group.
        parameters: The group.
        residuals: The owner residual of each parameter.
        rate_of: Gives a parameter's learning rate, for residuals in its units; else None.

    Attributes:
        received: What each rank said about its row in the newest step.
        error: Why a row of the newest step could not be used.
    """

    def __init__(
        self,
        rank: int,
        group: str,
        parameters: tuple[ExchangedParameter, ...],
        residuals: tuple[OwnerResidual, ...],
        *,
        rate_of: Callable[[ExchangedParameter], float] | None,
    ) -> None:
        self.received: list[Header] = []
        self.error: PayloadError | None = None
        self._rank = rank
        self._group = group
        self._parameters = parameters
        self._residuals = residuals
        self._rate_of = rate_of

    def use_layout(self, layout: SharesLayout) -> None:
        """Take rows of this layout from now on."""
        device = self._parameters[0].tensor.device
        self._layout = layout
        self._payload = torch.zeros(layout.nbytes, dtype=torch.uint8, device=device)
        sizes = [each[self._rank] for each in layout.sizes]
        self._totals = torch.empty(sum(sizes), device=device).split(sizes)

    def answer(self, rows: Tensor, step: int) -> Tensor:
        """Sum up what the ranks sent, and return the payload for all of them.

        A row that is wrong is no error yet: the payload tells all ranks, and all can raise.

        Args:
            rows: A row of each rank, whose checksums are zeroed. [P, B], uint8
            step: Optimizer step.

        Returns:
            Bytes that stay as they are until the next call. [B], uint8
        """
        wrong_rank = self._open(rows, step)
        num_nonfinite: Tensor | int = 0
        # Where no rank sends, what is pending must not move the parameter either
        empty = wrong_rank is not None or all(header.empty for header in self.received)
        if not empty:
            try:
                num_nonfinite = self._select(rows)
            except CorruptSectionError as error:
                wrong_rank, empty = error.rank, True
                reason = str(error).removesuffix(".")
                self.error = wrong_payload(wrong_rank, self._group, step, reason)
        header = Header(num_nonfinite, empty, wrong_rank)
        seal(self._payload, self._layout.sums, header, step=step, rank=self._rank)
        return self._payload

    def commit(self) -> None:
        """Accept that the sums were sent."""
        for residual in self._residuals:
            residual.commit()
        self._forget()

    def revert(self) -> None:
        """Forget the step."""
        for residual in self._residuals:
            residual.revert()
        self._forget()

    def _forget(self) -> None:
        self.received, self.error = [], None

    def _open(self, rows: Tensor, step: int) -> int | None:
        """Check all rows, and return the first rank whose row is wrong."""
        layout = self._layout.rows[self._rank]
        for rank, row in enumerate(receive_payloads(rows)):
            try:
                header = open_payload(row, layout, step=step, rank=rank, group=self._group)
            except PayloadError as error:
                self.error = error
                return rank
            self.received.append(header)
        return None

    def _select(self, rows: Tensor) -> Tensor | int:
        """Select from the sums of every parameter; return how many were not finite."""
        skip = [rank for rank, header in enumerate(self.received) if header.empty]
        selecting: list[Feedback | OwnerResidual] = []
        sections, selections = [], []
        for number, total in enumerate(self._totals):
            if not total.numel():
                continue
            k = self._layout.counts[number][self._rank]
            offset, dtype = self._layout.offsets[number], self._layout.value_dtype
            residual: Feedback | OwnerResidual = self._residuals[number]
            if self._parameters[number].tensor.requires_grad:
                if self._rate_of is not None:
                    residual.follow_rate(self._rate_of(self._parameters[number]))
                sections.append(RankSections(rows, offset, k, dtype, total, skip))
            else:
                # It sends zeros, of another one's, and keeps what it has pending
                residual = Feedback(total.numel(), rows.device, momentum=None)
                total.zero_()
            selecting.append(residual)
            selections.append(
                residual.prepare(
                    total, ks=(k,), scale=1.0, rows=self._payload[None], offset=offset, dtype=dtype
                )
            )
        if sections:
            add_many(sections, scale=1.0)
        if not selections:
            return 0
        report = select_many(selections)
        for residual, met in zip(selecting, report.each, strict=True):
            residual.remember(met)
        return report.num_nonfinite
