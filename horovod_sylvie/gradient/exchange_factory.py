"""From a plan to exchanges: what is built again when a group or the ranks change.

Residuals and velocities belong to parameters, not to groups, so that nothing is lost by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..comm.protocol import Communicator
from ..planning.plan import Plan
from ..planning.plan_text import plan_digest
from .allreduce_exchange import AllreduceExchange
from .bf16_exchange import Bf16Exchange
from .compression import Lags, can_be_sparse
from .exchange import Exchange
from .feedback import Feedback
from .fused_exchange import FusedExchange
from .grouping import Group, make_groups
from .local_exchange import LocalExchange
from .momentum import DenseMomentum
from .options import ExchangeOptions
from .owner_residual import OwnerResidual, OwnerResiduals
from .parameter import ExchangedParameter
from .selected_exchange import SelectionOptions
from .sparse_rows_exchange import SparseRowsExchange
from .top_k_exchange import TopKExchange
from .two_phase_exchange import TwoPhaseExchange


class ExchangeFactory:
    """Makes the exchanges of a model, and keeps each parameter's feedback.

    Args:
        options: How.
        rate_of: Gives a parameter's learning rate.

    Attributes:
        feedback: By parameter name.
        momentum: By parameter name; empty without momentum correction.
        plan: Of densities that adapt; None before there is one.
        owners: What this rank keeps of the shares that it owns in two-phase exchanges.
    """

    def __init__(
        self, options: ExchangeOptions, rate_of: Callable[[ExchangedParameter], float]
    ) -> None:
        self._options = options
        self._rate_of = rate_of
        self.feedback: dict[str, Feedback] = {}
        self.momentum: dict[str, DenseMomentum] = {}
        self.plan: Plan | None = None
        self.owners = OwnerResiduals()

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
        plan = self.plan if comm.size > 1 else None
        groups = make_groups(
            dense,
            self._options.compression,
            self._options.groups,
            plan,
            in_one=self._options.yields,
        )
        for group in groups:
            if group.kind != "two-phase" or comm.size == 1:
                self._take_home(group.parameters)
        self._take_home(sparse)
        # What ranks must agree on, for the header of each payload
        digest = "" if self.plan is None else f", plan={plan_digest(self.plan)}"
        description = f"{self._options.describe()}{digest}"
        exchanges = [self._exchange_of(comm, group, description) for group in groups]
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

    def _exchange_of(self, comm: Communicator, group: Group, description: str) -> Exchange:
        options = self._options
        if group.kind == "allreduce":
            return AllreduceExchange(
                comm, group.name, group.parameters, options.compression, options.reduction
            )
        if group.kind == "fused":
            pending = tuple(self._pending_of(parameter) for parameter in group.parameters)
            sparse = options.sparse
            by_rate = sparse is not None and sparse.residual_units == "learning_rate"
            return FusedExchange(
                comm,
                group.name,
                group.parameters,
                options.reduction,
                pending,
                self._rate_of if by_rate else None,
            )
        if group.kind == "bf16":
            return Bf16Exchange(comm, group.name, group.parameters, options.reduction)
        assert options.sparse is not None, "no other compression makes such groups"
        policy = options.sparse
        feedback = tuple(self._feedback_of(parameter) for parameter in group.parameters)
        if comm.size == 1:
            return LocalExchange(group.name, group.parameters, feedback)
        make: Callable[..., Exchange] = partial(TopKExchange, riders=group.riders)
        if group.kind == "two-phase":
            make = partial(TwoPhaseExchange, owners=self._owners_of(comm, group.parameters))
        top_k = policy.top_k(group.density) if isinstance(policy, Lags) else policy
        how = SelectionOptions(top_k, options.reduction, self._rate_of, description)
        return make(comm, group.name, group.parameters, feedback, how)

    def _owners_of(
        self, comm: Communicator, parameters: Sequence[ExchangedParameter]
    ) -> tuple[OwnerResidual, ...]:
        return tuple(
            self.owners.of(each, self.feedback[each.name], num_shares=comm.size, share=comm.rank)
            for each in parameters
        )

    def _take_home(self, parameters: Sequence[ExchangedParameter]) -> None:
        """Give what an owner kept back to its own residual, where there are no owners any more."""
        for parameter in parameters:
            if parameter.name in self.feedback:
                self.owners.take_home(parameter.name, self.feedback[parameter.name])

    def _pending_of(self, parameter: ExchangedParameter) -> Feedback | None:
        """Return the feedback of a parameter that travels dense for now, and sparse by other plans.

        It has one from the start: momentum correction acts before the selection then.
        """
        lags = self._options.lags
        if lags is None or not can_be_sparse(parameter.tensor, lags.min_elements):
            return None
        return self._feedback_of(parameter)

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
