"""What an owner keeps in the two-phase exchange: sums of its share that were not sent yet.

An owner sums up what all ranks sent of its share, and sends the largest sums. The rest waits here,
as a rank's own residual waits for the rank: it is a part of the sum over ranks, in gradient units,
free of a loss scale, and never in `optimizer.state`.

Shapes: D elements of the parameter, S elements of the share, K selected.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..ops.shares import share_elements, share_places
from ..ops.top_k_many import Selection, SharesReport
from .feedback import Feedback
from .parameter import ExchangedParameter


class OwnerResidual:
    """The owner residual of one share of one parameter.

    Invariant: finite, and that of the last committed step until `commit`, bit for bit, as of
    `Feedback`.

    Args:
        num_elements: D.
        num_shares: P, the number of ranks.
        share: Which: this rank's number.
        device: Where the parameter is.
    """

    def __init__(
        self, num_elements: int, *, num_shares: int, share: int, device: torch.device
    ) -> None:
        self.num_shares = num_shares
        self.share = share
        self._num_elements = num_elements
        self._sums = Feedback(
            share_elements(num_elements, num_shares, share), device, momentum=None
        )

    @property
    def residual(self) -> Tensor:
        """What was not sent. [S], float32."""
        return self._sums.residual

    def prepare(
        self,
        total: Tensor,
        *,
        ks: Sequence[int],
        scale: float,
        rows: Tensor,
        offset: int,
        dtype: torch.dtype,
    ) -> Selection:
        """Say how the ranks' sum is added, and the K largest elements move into a payload.

        Args:
            total: What all ranks sent of the share, summed. [S], float32
            ks: K, alone.
            scale: What the sum is multiplied by.
            rows: The payload, whose section will be written. [1, B], uint8
            offset: Where that starts.
            dtype: How values travel.
        """
        return self._sums.prepare(total, ks=ks, scale=scale, rows=rows, offset=offset, dtype=dtype)

    def remember(self, report: SharesReport) -> None:
        """Keep what makes the next selection fast."""
        self._sums.remember(report)

    def follow_rate(self, rate: float) -> None:
        """Keep it in learning-rate units, as `Feedback.follow_rate`."""
        self._sums.follow_rate(rate)

    def commit(self) -> None:
        """Accept that the selected sums were sent."""
        self._sums.commit()

    def revert(self) -> None:
        """Forget the selection: nothing was sent."""
        self._sums.revert()

    def add_to(self, tensor: Tensor) -> None:
        """Add it where its elements are in a tensor of the whole parameter. [D], float32."""
        places = share_places(self._num_elements, self.num_shares, self.share, tensor.device)
        tensor[places] += self.residual

    def clear(self) -> None:
        """Keep nothing."""
        self.residual.zero_()

    def go_home(self, feedback: Feedback) -> None:
        """Make it a part of this rank's own residual, and keep nothing.

        What is pending stays what it was: a rank's residual is a part of the sum over ranks, too.

        Args:
            feedback: Of the same parameter; its residual is mutated.
        """
        rate = feedback.last_rate
        if rate is None:
            feedback.last_rate = self._sums.last_rate
        else:
            self._sums.follow_rate(rate)
        self.add_to(feedback.residual)
        self.clear()


class OwnerResiduals:
    """The owner residuals of this rank; they belong to parameters, and outlive exchanges."""

    def __init__(self) -> None:
        self._owned: dict[str, OwnerResidual] = {}  # by parameter name

    def of(
        self, parameter: ExchangedParameter, feedback: Feedback, *, num_shares: int, share: int
    ) -> OwnerResidual:
        """Return a parameter's owner residual for these ranks.

        Args:
            parameter: Which.
            feedback: Of this parameter. What was kept for other ranks becomes a part of it.
            num_shares: P, the number of ranks.
            share: This rank's number.
        """
        owned = self._owned.get(parameter.name)
        if owned is None or (owned.num_shares, owned.share) != (num_shares, share):
            self.take_home(parameter.name, feedback)
            owned = self._owned[parameter.name] = OwnerResidual(
                parameter.num_elements,
                num_shares=num_shares,
                share=share,
                device=parameter.tensor.device,
            )
        return owned

    def take_home(self, name: str, feedback: Feedback) -> None:
        """Make what is kept of a parameter a part of this rank's own residual.

        For a parameter that is exchanged in another way from now on; between steps only. Where
        nothing is kept, nothing happens.

        Args:
            name: Of the parameter.
            feedback: Of this parameter; its residual is mutated.
        """
        owned = self._owned.pop(name, None)
        if owned is not None:
            owned.go_home(feedback)

    def all(self) -> dict[str, OwnerResidual]:
        """Return what is kept, by parameter name."""
        return dict(self._owned)

    def clear(self) -> None:
        """Keep nothing of any parameter: a checkpoint is loaded, which has it elsewhere."""
        for owned in self._owned.values():
            owned.clear()
