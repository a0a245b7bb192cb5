"""What a group does where there is one rank only: nothing is sent, nothing is left out.

An elastic job may shrink to one rank; what was pending then is applied at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .exchange import ExchangeCost, Step
from .feedback import Feedback
from .parameter import ExchangedParameter


class LocalExchange:
    """Keeps the gradients of a group, and adds what an earlier step left pending.

    Args:
        name: Stable name of the group.
        parameters: The group.
        feedback: Of each parameter.
    """

    def __init__(
        self,
        name: str,
        parameters: tuple[ExchangedParameter, ...],
        feedback: tuple[Feedback, ...],
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.feedback = feedback
        self.cost = ExchangeCost()
        self._whole: list[tuple[ExchangedParameter, Tensor]] = []

    def start(self, step: Step) -> None:
        """Take what is pending."""
        for parameter, feedback in zip(self.parameters, self.feedback, strict=True):
            gradient = parameter.gradient()
            if gradient is None:
                gradient = torch.zeros_like(feedback.residual)
            whole = feedback.whole(gradient, step.clip / step.loss_scale) * step.loss_scale
            self._whole.append((parameter, whole))
        self.cost.count(0, 0)

    def proceed(self) -> None:
        """Do nothing."""

    def wait(self) -> list[str]:
        """Say which gradients are not finite: what is pending must not go with them."""
        return [
            f"'{parameter.name}'"
            for parameter, whole in self._whole
            if not bool(torch.isfinite(whole).all())
        ]

    def decode(self, num_active: int) -> None:
        """Make it the gradients."""
        for parameter, whole in self._whole:
            parameter.store(whole)

    def commit(self) -> None:
        """Keep nothing pending."""
        for feedback in self.feedback:
            feedback.flush()
        self.revert()

    def revert(self) -> None:
        """Forget what was taken."""
        self._whole.clear()
