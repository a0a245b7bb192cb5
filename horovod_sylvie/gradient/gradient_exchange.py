"""The schedule of a step: start in backward, wait at the end, apply all or nothing.

A group's exchange starts when its last gradient is there (`started.py`). Four things make it start
at the end of backward instead, on every rank alike: the first step after the ranks were (re)built,
in which they first check that they run the same plan; clipping by the norm of the whole gradient;
other traffic that goes first; and parameters without a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from ..comm.protocol import Communicator
from .adaptive_plan import AdaptivePlan
from .arrivals import Arrivals
from .clipping import clip_factor
from .exchange import Exchange, Step
from .exchange_factory import ExchangeFactory
from .gradient_kinds import GradientKinds, row_counts
from .group_progress import GroupProgress
from .loss_scaler import StepScale
from .momentum import share_momentum
from .options import ExchangeOptions
from .outcome import Outcome, overflow_all, receive, refuse
from .parameter import ExchangedParameter
from .sparse_rows_exchange import SparseRowsExchange
from .started import StartedExchanges
from .status import agree_on_plan
from .telemetry import LayerSample, sample_layers


class GradientExchange:
    """Exchanges gradients step by step; between steps nothing is in flight, residuals are finite.

    Args:
        comm: The communicator.
        parameters: In the order of definition; those that do not require gradients yet take part
            from the step in which they have one.
        options: How.
        passes: Backward passes per step.
        rate_of: Gives a parameter's learning rate.
        hyperparameters: Gives the numbers that a rank without batches must follow.
        after_submission: Called in each step when every group is on its way: what goes behind.
    """

    def __init__(
        self,
        comm: Communicator,
        parameters: Sequence[ExchangedParameter],
        options: ExchangeOptions,
        *,
        passes: int,
        rate_of: Callable[[ExchangedParameter], float],
        hyperparameters: Callable[[], Sequence[float]],
        after_submission: Callable[[], None] = lambda: None,
    ) -> None:
        self.comm = comm
        self.options = options
        self.step_number = 0
        self.last_active = comm.size - 1  # the highest rank that had a batch in the newest step
        self.factory = ExchangeFactory(options, rate_of)
        self.arrivals = Arrivals(passes, self._complete)
        self.parameters: list[ExchangedParameter] = []
        self.exchanges: list[Exchange] = []
        self.started = StartedExchanges()
        self.samples: dict[str, LayerSample] = {}
        self.adaptive: AdaptivePlan | None = None
        if options.lags is not None:
            self.adaptive = AdaptivePlan(options.lags, starts_late=options.starts_late)
        self._hyperparameters = hyperparameters
        self._loss_scale = StepScale(options.loss_scale)
        self._after_submission = after_submission
        self._frozen: list[ExchangedParameter] = []
        self._kinds = GradientKinds(sparse_as_dense=options.sparse_as_dense)
        self._progress = GroupProgress([])
        self._agreed = False
        self._shares_plan = True
        self.add(parameters)

    @property
    def is_pending(self) -> bool:
        """Whether gradients have come since the last synchronisation."""
        return self.arrivals.any_since_reset

    def add(self, parameters: Sequence[ExchangedParameter]) -> None:
        """Exchange more parameters from now on; all ranks add the same."""
        self._frozen += [each for each in parameters if not each.tensor.requires_grad]
        self._watch([each for each in parameters if each.tensor.requires_grad])

    def use_communicator(self, comm: Communicator) -> None:
        """Go on with other ranks: what was in flight is gone, what was kept stays."""
        self.forget_agreement()
        self.comm = comm
        self._kinds.add(self.parameters)  # a rank that is new knows none: all learn them again
        self._use(self._make(self.parameters))

    def forget_agreement(self) -> None:
        """Check the options and the step, and share the plan, before the next exchange."""
        self._agreed = False
        self._shares_plan = True
        self._end_step()

    def resume_at(self, step: int) -> None:
        """Go on at a step of a checkpoint, where no step was taken yet.

        Ranks that have taken steps together stay where they are, unless they agree again.
        """
        if not self._agreed:
            self.step_number = step

    def drop_step(self) -> None:
        """Forget the gradients that have come since the last step, and those that are unfrozen."""
        self._adopt_unfrozen()
        self._end_step()

    def synchronize(self, *, joined: bool = False) -> Outcome:
        """Exchange whatever has not been, wait for all of it, and replace the local gradients.

        Args:
            joined: Whether this rank has no more batches.

        Raises:
            RuntimeError: A gradient was changed while it was exchanged.
            NonFiniteGradientError: A rank's gradient has an Inf or a NaN, gradients are
                sparsified, and there is no GradScaler. On every rank; residuals are intact.
            PeerError: The ranks would exchange different things.
            CommunicationError: A rank ended, or its payload is wrong; residuals are intact. Where
                it comes from a decision on the next plan, this step's gradients are there.

        Note:
            Collective. Blocks until every rank has called it, or the deadline has passed.
        """
        self.arrivals.raise_if_changed(self.comm.rank)
        self._adopt_unfrozen()
        try:
            outcome = self._exchange_all(joined)
        finally:
            started = list(self.started)
            self._end_step()
        if self.adaptive is not None and any(outcome.active):
            self._adapt(self.adaptive, started)
        return outcome

    def _adapt(self, adaptive: AdaptivePlan, started: Sequence[Exchange]) -> None:
        """Measure the step that has ended, and plan again where that is due."""
        is_due = adaptive.end_step(started, self.step_number) and self.comm.size > 1
        if is_due and adaptive.decide(self.comm, self.planned_parameters(), self.exchanges):
            self.follow_plan()

    def follow_plan(self) -> None:
        """Exchange by the plan that is in use now; nothing may be in flight."""
        if self.adaptive is not None:
            self.factory.plan = self.adaptive.plan
        self._use(self._make(self.parameters))

    def planned_parameters(self) -> list[ExchangedParameter]:
        """Return the parameters that a plan is about, in the order of definition."""
        return [each for each in self.parameters if not self._kinds.travels_by_row(each)]

    def _end_step(self) -> None:
        """Take back what was selected and not applied, and begin anew."""
        self.started.revert()
        self.arrivals.reset()
        self._progress.restart()
        self._loss_scale.end_step()

    def _exchange_all(self, joined: bool) -> Outcome:
        if not self._agreed:
            self._agree()
        active, hyperparameters = self._learn_status(joined)
        if not any(active):
            return Outcome(active)
        self.last_active = max(rank for rank, is_active in enumerate(active) if is_active)
        step = self._step(1.0 if joined else self._clip(), joined)
        for exchange in self.exchanges:
            if exchange not in self.started:
                self._start(exchange, step, in_backward=False)
        self.started.settle()
        self._after_submission()
        for exchange in self.started:
            exchange.proceed()
        refuses = self.options.sparse is not None
        faults = receive([*self.started], sum(active), refuses=refuses)
        self.step_number += 1
        if faults:
            for exchange in self.started:
                exchange.revert()
            if not self.options.scales_loss:
                raise refuse(faults, rank=self.comm.rank, step=step.number)
            overflow_all(self.parameters)
            self._kinds.restore(self.parameters)
            return Outcome(active, overflow=True)
        self._apply(step, sum(active))
        return Outcome(active, hyperparameters=hyperparameters)

    def _agree(self) -> None:
        """Check that all ranks exchange the same, and give those that are new what they lack."""
        description = [self.options.describe(), *(each.describe() for each in self.parameters)]
        self.step_number = agree_on_plan(self.comm, description, self.step_number)
        share_momentum(self.comm, self.factory.momentum)
        # Not where parameters are new: groups of the others may be in flight, and stay as they are
        adaptive = self.adaptive if self._shares_plan and self.comm.size > 1 else None
        if adaptive is not None and adaptive.begin(self.comm, self.planned_parameters()):
            self.follow_plan()
        self._agreed, self._shares_plan = True, False

    def _apply(self, step: Step, num_active: int) -> None:
        """Keep what the step leaves, and finish its gradients."""
        for exchange in self.started:
            exchange.commit()
        if step.sampled:
            scale = self.options.reduction.scale(num_active) * step.loss_scale
            # In the plan's order: hooks may run in another one on each rank
            self.samples = sample_layers(self.comm, self.exchanges, step=step.number, scale=scale)
        self._kinds.restore(self.parameters)
        for momentum in self.factory.momentum.values():
            momentum.apply(step.loss_scale)

    def _complete(self, parameter: ExchangedParameter) -> None:
        """Start a group's exchange where the gradient that has come was its last."""
        if self.adaptive is not None:
            self.adaptive.measurements.arrive(parameter.name)
        grad = parameter.tensor.grad
        assert grad is not None, "the hook runs after accumulation"
        if grad.is_sparse and self._kinds.may_travel_by_row(parameter):
            return  # by row: all ranks first learn how many rows there are
        exchange = self._progress.complete(parameter)
        if exchange is not None and self._starts_in_backward(exchange):
            with nullcontext() if self.adaptive is None else self.adaptive.measurements.paused():
                self._start(exchange, self._step(), in_backward=True)

    def _starts_in_backward(self, exchange: Exchange) -> bool:
        late = isinstance(exchange, SparseRowsExchange) or self.options.starts_late
        return self._agreed and not late and not self.comm.ranks_changed()

    def _start(self, exchange: Exchange, step: Step, *, in_backward: bool) -> None:
        self.started.start(exchange, step, in_backward=in_backward)
        for parameter in exchange.parameters:
            self.arrivals.hand_over(parameter)

    def _learn_status(self, joined: bool) -> tuple[tuple[bool, ...], tuple[float, ...]]:
        """Exchange the status where a rank may not know something, and act on it."""
        if self._kinds.settled and not self.options.uneven_batches:
            return (True,) * self.comm.size, ()
        numbers = self._hyperparameters() if self.options.uneven_batches else ()
        status = self._kinds.learn(
            self.comm, self.parameters, joined=joined, hyperparameters=numbers
        )
        by_row = [each for each in self.parameters if self._kinds.travels_by_row(each)]
        exchange_of = self._progress.exchange_of
        if not all(isinstance(exchange_of(each), SparseRowsExchange) for each in by_row):
            self._divide()
        for parameter in by_row:
            exchange = self._progress.exchange_of(parameter)
            assert isinstance(exchange, SparseRowsExchange), "the factory makes it by row"
            exchange.expect(row_counts(status, self.parameters.index(parameter)))
        return status.active, status.hyperparameters

    def _step(self, clip: float = 1.0, joined: bool = False) -> Step:
        every = self.options.telemetry_every
        sampled = every > 0 and self.step_number % every == 0
        return Step(self.step_number, clip, self._loss_scale.get(), joined, sampled)

    def _clip(self) -> float:
        limit = self.options.clip_limit(self.comm.size)
        return clip_factor(self.parameters, limit, loss_scale=self._loss_scale.get())

    def _adopt_unfrozen(self) -> None:
        """Take in parameters that were made trainable; every rank does so in the same step."""
        unfrozen = [each for each in self._frozen if each.tensor.requires_grad]
        if unfrozen:
            self._frozen = [each for each in self._frozen if not each.tensor.requires_grad]
            self._watch(unfrozen)

    def _watch(self, parameters: Sequence[ExchangedParameter]) -> None:
        self.parameters += parameters
        self._kinds.add(parameters)
        self.arrivals.watch(parameters)
        self._agreed = False
        # Among themselves: the groups of the others may be in flight
        self._use([*self.exchanges, *self._make(parameters)])

    def _divide(self) -> None:
        """Take the parameters that travel by row out of their groups, which await them yet."""
        divided: list[Exchange] = []
        for exchange in self.exchanges:
            mixed = any(self._kinds.travels_by_row(each) for each in exchange.parameters)
            by_row = isinstance(exchange, SparseRowsExchange)
            divided += self._make(exchange.parameters) if mixed and not by_row else [exchange]
        self._use(divided)

    def _make(self, parameters: Sequence[ExchangedParameter]) -> list[Exchange]:
        by_row = [each for each in parameters if self._kinds.travels_by_row(each)]
        return self.factory.make(self.comm, parameters, by_row)

    def _use(self, exchanges: list[Exchange]) -> None:
        self.exchanges = exchanges
        self._progress = GroupProgress(exchanges)
