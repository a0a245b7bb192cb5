"""What a rank keeps of one parameter between steps: error feedback, and momentum correction.

The residual is what was not sent; it is added to the next gradient. With momentum correction
(Lin et al., Deep Gradient Compression, ICLR 2018, equation 4) a velocity stands before it:
u = m u + g, v = v + u, the K largest of v are sent, and u and v are cleared where they were.

Both are float32, in gradient units, free of a loss scale. They never live in `optimizer.state`:
`hvd.broadcast_optimizer_state` would copy rank 0's to every rank and multiply their mass.

Shapes: D elements of the parameter, K selected.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.top_k import SelectReport, clear_selected, select_top_k


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
        self.hint = 0
        self._momentum = momentum
        self._accumulated = torch.zeros_like(self.residual)
        self._next_velocity = None if momentum is None else torch.zeros_like(self.residual)
        self._selected: tuple[Tensor, int, torch.dtype] | None = None
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

    def select(
        self, gradient: Tensor | None, *, k: int, scale: float, section: Tensor, dtype: torch.dtype
    ) -> SelectReport:
        """Add a gradient, and move the K largest elements into a section of a payload.

        Args:
            gradient: The local gradient, or None. [D]
            k: K.
            scale: What the gradient is multiplied by.
            section: Written. `section_bytes(D, K, dtype)` bytes.
            dtype: How values travel.
        """
        if self.velocity is not None:
            gradient, scale = self._accelerate(self.velocity, gradient, scale), 1.0
        report = select_top_k(
            gradient,
            self.residual,
            k=k,
            scale=scale,
            value_dtype=dtype,
            hint=self.hint,
            accumulated=self._accumulated,
            section=section,
        )
        self.hint = report.threshold_bits
        self._selected = (section, k, dtype)
        return report

    def _accelerate(self, velocity: Tensor, gradient: Tensor | None, scale: float) -> Tensor:
        """Return m u + g, and keep it as the next velocity where it is finite. [D], float32."""
        assert self._momentum is not None
        assert self._next_velocity is not None
        torch.mul(velocity, self._momentum, out=self._next_velocity)
        if gradient is None:
            return self._next_velocity
        total = torch.add(self._next_velocity, gradient.float() * scale)
        # An Inf must reach the kernel, which counts it, and must not stay here
        torch.where(torch.isfinite(total), total, self._next_velocity, out=self._next_velocity)
        return total

    def commit(self) -> None:
        """Accept that the selected elements were sent."""
        if self._selected is None:
            return
        section, k, dtype = self._selected
        self._selected = None
        self.residual, self._accumulated = self._accumulated, self.residual
        if self.velocity is not None and self._next_velocity is not None:
            self.velocity, self._next_velocity = self._next_velocity, self.velocity
            clear_selected(
                section,
                num_elements=self.residual.numel(),
                k=k,
                value_dtype=dtype,
                tensor=self.velocity,
            )

    def revert(self) -> None:
        """Forget the selection: nothing was sent."""
        self._selected = None

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
