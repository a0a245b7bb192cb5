"""What a rank keeps of one parameter between steps: error feedback, and momentum correction.

The residual is what was not sent; it is added to the next gradient. With momentum correction
(Lin et al., Deep Gradient Compression, ICLR 2018, equation 4) a velocity stands before it:
u = m u + g, v = v + u, the K largest of v are sent, and u and v are cleared where they were.

Both are float32, in gradient units, free of a loss scale. They never live in `optimizer.state`:
`hvd.broadcast_optimizer_state` would copy rank 0's to every rank and multiply their mass.

Shapes: D elements of the parameter, K selected, P shares, B bytes of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

from ..ops.top_k_many import Selection, ShareSections, SharesReport, clear_many


class Feedback:
    """The residual of one parameter, and its velocity where there is momentum correction.

    Invariant: finite. `residual` and `velocity` are those of the last committed step until
    `commit`: a step that fails, for whatever reason and on whichever rank, leaves them bit for bit
    as they were. That costs a second buffer of each.

    Args:
        num_elements: D.
        device: Where the parameter is.
        momentum: Of momentum correction; None without.
    """

    def __init__(self, num_elements: int, device: torch.device, *, momentum: float | None) -> None:
        self.residual = torch.zeros(num_elements, device=device)
        self.velocity = None if momentum is None else torch.zeros_like(self.residual)
        self._hints: tuple[int, ...] = ()
        self._momentum = momentum
        self._accumulated = torch.zeros_like(self.residual)
        self._next_velocity = None if momentum is None else torch.zeros_like(self.residual)
        # Of an array, what was selected from it
        self._sent: Callable[[Tensor], ShareSections] | None = None
        self._flushed_velocity: Tensor | None = None
        self.last_rate: float | None = None

    def follow_rate(self, rate: float) -> None:
        """Keep the residual in learning-rate units: what is pending was computed at an older rate.

        Args:
            rate: Learning rate of the step that begins. At 0 nothing changes.
        """
        if rate > 0 and self.last_rate is not None and rate != self.last_rate:
            self.residual.mul_(self.last_rate / rate)
        self.last_rate = rate if rate > 0 else self.last_rate

    def prepare(
        self,
        gradient: Tensor | None,
        *,
        ks: Sequence[int],
        scale: float,
        rows: Tensor,
        offset: int,
        dtype: torch.dtype,
    ) -> Selection:
        """Say how a gradient is added, and the largest elements move into each owner's row.

        Whoever selects tells `remember`. A row with one share is a payload's.

        Args:
            gradient: The local gradient, or None. [D]
            ks: K of each share; 0 of an empty one. P entries
            scale: What the gradient is multiplied by.
            rows: Their sections will be written. [P, B], uint8
            offset: Where they start in each row.
            dtype: How values travel.
        """
        gradient, scale = self._accelerate(gradient, scale)
        if len(self._hints) != len(ks):
            self._hints = (max(self._hints, default=0),) * len(ks)
        self._sent = partial(ShareSections, rows, offset, ks, dtype)
        return Selection(
            gradient,
            self.residual,
            ks,
            scale,
            dtype,
            self._hints,
            self._accumulated,
            rows,
            offset,
        )

    def remember(self, report: SharesReport) -> None:
        """Keep what makes the next selection fast."""
        self._hints = report.hints

    def _accelerate(self, gradient: Tensor | None, scale: float) -> tuple[Tensor | None, float]:
        """Return what is selected from, and its scale: m u + g with momentum correction.

        Keeps that as the next velocity where it is finite.
        """
        if self.velocity is None:
            return gradient, scale
        assert self._momentum is not None
        assert self._next_velocity is not None
        torch.mul(self.velocity, self._momentum, out=self._next_velocity)
        if gradient is None:
            return self._next_velocity, 1.0
        total = torch.add(self._next_velocity, gradient.float() * scale)
        # An Inf must reach the kernel, which counts it, and must not stay here
        torch.where(torch.isfinite(total), total, self._next_velocity, out=self._next_velocity)
        return total, 1.0

    def commit(self) -> None:
        """Accept that the selected elements were sent."""
        commit_all([self])

    def _swap(self) -> ShareSections | None:
        """Make what the step leaves what counts; return what of it must still be cleared."""
        if self._sent is None:
            return None
        sent, self._sent = self._sent, None
        self.residual, self._accumulated = self._accumulated, self.residual
        if self.velocity is None or self._next_velocity is None:
            return None
        self.velocity, self._next_velocity = self._next_velocity, self.velocity
        return sent(self.velocity)

    def revert(self) -> None:
        """Forget the selection: nothing was sent."""
        self._sent = None

    def whole(self, gradient: Tensor, scale: float) -> Tensor:
        """Return all that is pending, with a gradient added; see `flush`. [D], float32."""
        gradient = gradient.float() * scale
        if self.velocity is not None and self._momentum is not None:
            gradient = self._momentum * self.velocity + gradient
            self._flushed_velocity = gradient
        return self.residual + gradient

    def flush(self) -> None:
        """Keep nothing pending: what `whole` returned is applied."""
        self.residual.zero_()
        if self.velocity is not None and self._flushed_velocity is not None:
            self.velocity.copy_(self._flushed_velocity)
        self._flushed_velocity = None


def commit_all(feedback: Iterable[Feedback]) -> None:
    """Accept that the selected elements of all of them were sent."""
    to_clear = [sent for sent in (each._swap() for each in feedback) if sent is not None]
    if to_clear:
        clear_many(to_clear)
