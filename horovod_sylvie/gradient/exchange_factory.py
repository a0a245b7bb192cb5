"""From a plan to exchanges: what is built again when a group or the ranks change.

Residuals and velocities belong to parameters, not to groups, so that nothing is lost by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..comm.protocol import Communicator
from .allreduce_exchange import AllreduceExchange
from .bf16_exchange import Bf16Exchange
from .exchange import Exchange
from .feedback import Feedback
from .fused_exchange import FusedExchange
from .grouping import Group, make_groups
from .local_exchange import LocalExchange
from .momentum import DenseMomentum
from .options import ExchangeOptions
from .parameter import ExchangedParameter
from .sparse_rows_exchange import SparseRowsExchange
from .top_k_exchange import TopKExchange


class ExchangeFactory:
    """Makes the exchanges of a model, and keeps each parameter's feedback.

    Args:
        options: How.
        rate_of: Gives a parameter's learning rate.

    Attributes:
        feedback: By parameter name.
        momentum: By parameter name; empty without momentum correction.
    """

    def __init__(
        self, options: ExchangeOptions, rate_of: Callable[[ExchangedParameter], float]
    ) -> None:
        self._options = options
        self._rate_of = rate_of
        self.feedback: dict[str, Feedback] = {}
        self.momentum: dict[str, DenseMomentum] = {}

    def make(
        self,
        comm: Communicator,
        parameters: Sequence[ExchangedParameter],
        sparse: Sequence[ExchangedParameter],
    ) -> list[Exchange]:
        """Make the exchanges of parameters.

        Args:
            comm: The communicator.
            parameters: All of them, in the order of definition.
            sparse: Those whose gradients travel by row.
        """
        by_row = {id(parameter) for parameter in sparse}
        dense = [parameter for parameter in parameters if id(parameter) not in by_row]
        groups = make_groups(dense, self._options.compression, self._options.groups)
        exchanges: list[Exchange] = [self._exchange_of(comm, group) for group in groups]
        exchanges += [
            SparseRowsExchange(comm, parameter, self._options.reduction) for parameter in sparse
        ]
        for parameter in sparse:
            # It was selected from while nobody knew; none of its gradients has been there yet
            self.feedback.pop(parameter.name, None)
            if parameter.name in self.momentum and self.momentum[parameter.name].velocity is None:
                del self.momentum[parameter.name]
        self._make_momentum(parameters)
        return exchanges

    def _exchange_of(self, comm: Communicator, group: Group) -> Exchange:
        options = self._options
        if group.kind == "allreduce":
            return AllreduceExchange(
                comm, group.name, group.parameters, options.compression, options.reduction
            )
        if group.kind == "fused":
            return FusedExchange(comm, group.name, group.parameters, options.reduction)
        if group.kind == "bf16":
            return Bf16Exchange(comm, group.name, group.parameters, options.reduction)
        assert options.top_k is not None, "no other compression makes such groups"
        feedback = tuple(self._feedback_of(parameter) for parameter in group.parameters)
        if comm.size == 1:
            return LocalExchange(group.name, group.parameters, feedback)
        return TopKExchange(
            comm,
            group.name,
            group.parameters,
            feedback,
            policy=options.top_k,
            reduction=options.reduction,
            rate_of=self._rate_of,
            description=options.describe(),
        )

    def _feedback_of(self, parameter: ExchangedParameter) -> Feedback:
        if parameter.name not in self.feedback:
            taken = self._options.momentum.get(id(parameter.tensor))
            self.feedback[parameter.name] = Feedback(
                parameter.num_elements,
                parameter.tensor.device,
                momentum=None if taken is None else taken.momentum,
            )
        return self.feedback[parameter.name]

    def _make_momentum(self, parameters: Sequence[ExchangedParameter]) -> None:
        for parameter in parameters:
            taken = self._options.momentum.get(id(parameter.tensor))
            if taken is not None and parameter.name not in self.momentum:
                self.momentum[parameter.name] = DenseMomentum(
                    parameter, taken, travels_dense=parameter.name not in self.feedback
                )
