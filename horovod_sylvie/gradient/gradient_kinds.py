"""Which parameters have dense gradients and which sparse ones: learnt, and the same on every rank.

Nothing about a parameter says that its gradient will be sparse; the first gradient does, on the
ranks that have one. Until every parameter's kind is known, ranks exchange a status in each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..comm.errors import PeerError
from ..comm.protocol import Communicator
from .parameter import ExchangedParameter
from .sparse_rows_exchange import sparse_rows
from .status import DENSE_GRADIENT, NO_GRADIENT, SPARSE_GRADIENT, Status, exchange_status

# A parameter that has had no gradient on any rank for so many steps counts as dense: a model with a
# part that is never used must not pay for a status in each step for ever
_STEPS_TO_LEARN: Final = 10


class GradientKinds:
    """The kind of each parameter's gradient, as far as any rank has seen one.

    Args:
        sparse_as_dense: Whether sparse gradients travel dense.
    """

    def __init__(self, *, sparse_as_dense: bool) -> None:
        self._sparse_as_dense = sparse_as_dense
        self._kinds: dict[str, int] = {}
        self._steps_learnt: dict[str, int] = {}

    def add(self, parameters: Sequence[ExchangedParameter]) -> None:
        """Begin with parameters of which nothing is known."""
        for parameter in parameters:
            self._kinds[parameter.name] = NO_GRADIENT
            self._steps_learnt[parameter.name] = 0

    @property
    def settled(self) -> bool:
        """Whether a step needs no status: every kind is known, and none needs row counts."""
        return all(
            kind == DENSE_GRADIENT or (kind == SPARSE_GRADIENT and self._sparse_as_dense)
            for kind in self._kinds.values()
        )

    def may_travel_by_row(self, parameter: ExchangedParameter) -> bool:
        """Whether a sparse gradient of it must wait until all ranks know of it."""
        return not self._sparse_as_dense and self._kinds[parameter.name] != DENSE_GRADIENT

    def is_sparse(self, parameter: ExchangedParameter) -> bool:
        """Whether some rank has had a sparse gradient of this parameter."""
        return self._kinds[parameter.name] == SPARSE_GRADIENT

    def restore(self, parameters: Sequence[ExchangedParameter]) -> None:
        """Make gradients sparse again whose optimizer takes no others."""
        for parameter in parameters:
            if self.is_sparse(parameter):
                parameter.make_sparse()

    def travels_by_row(self, parameter: ExchangedParameter) -> bool:
        """Whether its gradients are exchanged by row."""
        return self.is_sparse(parameter) and not self._sparse_as_dense

    def learn(
        self,
        comm: Communicator,
        parameters: Sequence[ExchangedParameter],
        *,
        joined: bool,
        hyperparameters: Sequence[float],
    ) -> Status:
        """Exchange the status of a step.

        Args:
            comm: The communicator. Collective.
            parameters: All of them.
            joined: Whether this rank has no more batches.
            hyperparameters: What ranks without batches follow.

        Raises:
            PeerError: A gradient is dense on one rank and sparse on another; on every rank.
        """
        own = [NO_GRADIENT if joined else _kind_of(each) for each in parameters]
        status = exchange_status(
            comm, active=not joined, gradients=own, hyperparameters=hyperparameters
        )
        for parameter, kinds in zip(parameters, status.gradients.T.tolist(), strict=True):
            known = self._kinds[parameter.name]
            is_sparse = max(kinds) >= SPARSE_GRADIENT or known == SPARSE_GRADIENT
            is_dense = DENSE_GRADIENT in kinds
            if known == DENSE_GRADIENT:
                continue  # a sparse gradient travels dense from then on
            if is_sparse and is_dense and not self._sparse_as_dense:
                raise PeerError(
                    f"rank {comm.rank}: the gradient of '{parameter.name}' is sparse on some rank "
                    "and dense on another, or was dense before. Use the parameter in the same way "
                    "on every rank and in every step, or pass sparse_as_dense=True."
                )
            self._kinds[parameter.name] = max(known, min(max(kinds), SPARSE_GRADIENT))
            self._steps_learnt[parameter.name] += 1
            if not is_sparse and self._steps_learnt[parameter.name] >= _STEPS_TO_LEARN:
                self._kinds[parameter.name] = DENSE_GRADIENT
        return status


def row_counts(status: Status, number: int) -> list[int]:
    """Return how many rows each rank has of parameter `number`'s sparse gradient. P entries."""
    counts: list[int] = (status.gradients[:, number] - SPARSE_GRADIENT).clamp(min=0).tolist()
    return counts


def _kind_of(parameter: ExchangedParameter) -> int:
    grad = parameter.tensor.grad
    if grad is None:
        return NO_GRADIENT
    return SPARSE_GRADIENT + len(sparse_rows(grad)[0]) if grad.is_sparse else DENSE_GRADIENT
