"""A rank as an owner: it sums up its share of a group, and selects again from the sums.

Shapes: P ranks, B bytes of a row, S elements of a share.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..ops.selected import CorruptSectionError, add_selected
from ..ops.top_k import section_bytes
from .feedback import Feedback
from .owner_residual import OwnerResidual
from .parameter import ExchangedParameter
from .payload import Header, PayloadError, open_payloads, seal, wrong_payload
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
        self._total = torch.empty(max(each[0] for each in layout.sizes), device=device)

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
        num_nonfinite = 0
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
        try:
            for header in open_payloads(rows, layout, step=step, group=self._group):
                self.received.append(header)
        except PayloadError as error:
            self.error = error
            return len(self.received)
        return None

    def _select(self, rows: Tensor) -> int:
        """Select from the sums of every parameter; return how many were not finite."""
        num_nonfinite = 0
        skip = [rank for rank, header in enumerate(self.received) if header.empty]
        dtype = self._layout.value_dtype
        for number, residual in enumerate(self._residuals):
            size = self._layout.sizes[number][self._rank]
            if size == 0:
                continue
            k = self._layout.counts[number][self._rank]
            offset = self._layout.offsets[number]
            section = self._payload[offset : offset + section_bytes(size, k, dtype)]
            if not self._parameters[number].tensor.requires_grad:
                # It sends zeros, of another one's, and keeps what it has pending
                blank = Feedback(size, rows.device, momentum=None)
                blank.select(None, k=k, scale=1.0, section=section, dtype=dtype)
                continue
            if self._rate_of is not None:
                residual.follow_rate(self._rate_of(self._parameters[number]))
            total = self._total[:size]
            add_selected(
                rows,
                offset=offset,
                num_elements=size,
                k=k,
                value_dtype=dtype,
                scale=1.0,
                out=total,
                skip=skip,
            )
            num_nonfinite += residual.select(total, k=k, section=section, dtype=dtype)
        return num_nonfinite
