"""The plan of an exchange whose densities adapt: measured, decided by rank 0, the same everywhere.

At the first step ranks take over rank 0's plan, if it has one (from a checkpoint), and calibrate
the link. A few steps later, and every `replan_every` steps from then on, all ranks tell what they
have measured, rank 0 plans for the slowest of them, and all begin the next step with its plan.

Shapes: P ranks.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import torch

from ..comm.agreement import gather_bytes
from ..comm.protocol import Communicator
from ..device.clock import clock_of
from ..planning.layers import ComputeModel
from ..planning.link_model import LinkModel
from ..planning.plan import ExchangeKind, Plan, PlannedGroup, kinds_between, ladder
from ..planning.plan_text import plan_digest, plan_from_json, plan_to_json
from ..planning.planner import PlanOptions, make_plan
from ..planning.replan import should_replace
from ..planning.timeline import simulate
from .compression import Lags
from .exchange import Exchange
from .grouping import make_groups
from .link_samples import LinkSamples
from .misfit import Misfit
from .parameter import ExchangedParameter
from .planner_inputs import corrected_costs, layers_of, plan_of, usual_costs
from .rank_measurements import Measured, RankMeasurements
from .speed_of_rank import measure_speed

# Steps after the start at which a plan is made, before the regular ones: the first as soon as a
# profile can be trusted, the second when machines are warm
_EARLY: Final = (5, 15)
# A decision may take this share of the time until the next one. Where it takes longer, as on a slow
# link, the next one is put off, but by no more than so many times `replan_every`.
_SHARE: Final = 0.02
_MOST_PUT_OFF: Final = 2


@dataclass(frozen=True)
class PlanReport:
    """The plan in use, and what is known of it.

    Attributes:
        plan: Which layers travel together, and how; None before the first.
        digest: Of the plan.
        num_changes: How many plans there were before.
        predicted_step_s: Seconds of a step, by the newest model.
        measured_step_s: Seconds of a step on rank 0, before the newest decision; a median.
        link: What collectives cost, by the newest model; None before a decision of this run.
    """

    plan: Plan | None = None
    digest: str = ""
    num_changes: int = 0
    predicted_step_s: float = 0.0
    measured_step_s: float = 0.0
    link: LinkModel | None = None


class AdaptivePlan:
    """Measures steps, and decides how the next ones are exchanged.

    Args:
        policy: Bounds.
        starts_late: Whether all exchanges start at the end of backward, with nothing to hide them.
    """

    def __init__(self, policy: Lags, *, starts_late: bool) -> None:
        self.report = PlanReport()
        self.measurements = RankMeasurements()
        self._policy = policy
        self._starts_late = starts_late
        self._compute = ComputeModel()
        self._link: LinkSamples | None = None
        self._misfit = Misfit()
        self._comm: Communicator | None = None
        self._num_steps = 0
        self._decides_after = _EARLY[0]
        self._took_s = 0.0  # what the newest decision took on this rank

    @property
    def plan(self) -> Plan | None:
        """The plan in use; None before the first."""
        return self.report.plan

    def use(self, plan: Plan | None) -> None:
        """Go on with a plan of a checkpoint. On every rank alike."""
        digest = "" if plan is None else plan_digest(plan)
        self.report = PlanReport(plan, digest, self.report.num_changes)

    def begin(self, comm: Communicator, parameters: Sequence[ExchangedParameter]) -> bool:
        """Take over rank 0's plan, and calibrate the link where ranks are new to each other.

        Args:
            comm: The communicator. Collective.
            parameters: Those that may be planned.

        Returns:
            Whether this rank had another plan.
        """
        before = self.report.digest
        own = b""
        if comm.rank == 0 and self.plan is not None:
            own = plan_to_json(self._current(parameters)).encode()
        text = gather_bytes(comm, own, name="sylvie.plan.start")[0]
        plan = plan_from_json(text, [each.name for each in parameters]) if text else None
        # Without what ranks that are not new have predicted: all must judge the link alike
        self.use(plan)
        if comm is not self._comm and not self._is_frozen:
            if self._comm is None:
                clock = clock_of(each.tensor.device for each in parameters)
                self.measurements = RankMeasurements(clock)
            self._comm, self._num_steps, self._decides_after = comm, 0, _EARLY[0]
            device = parameters[0].tensor.device if parameters else torch.device("cpu")
            self._link = LinkSamples(comm, device)
            self._link.calibrate()
            self._misfit.forget()
            self._compute = measure_speed(device)
        self.measurements.begin_step()
        return before != self.report.digest

    def end_step(self, started: Sequence[Exchange], step: int) -> bool:
        """Keep what was measured of a step, and return whether a decision is due on all ranks.

        Args:
            started: The exchanges of the step, as they were started.
            step: Number of the next optimizer step. While densities warm up nothing is decided.
        """
        self.measurements.end_step(started)
        warmup = self._policy.warmup
        if self._is_frozen or (warmup is not None and step < warmup.steps):
            return False
        self._num_steps += 1
        return self._num_steps >= self._decides_after

    def decide(
        self,
        comm: Communicator,
        parameters: Sequence[ExchangedParameter],
        exchanges: Sequence[Exchange],
    ) -> bool:
        """Measure the link, and plan again.

        Args:
            comm: The communicator. Collective.
            parameters: Those that are planned, in the order of definition.
            exchanges: All that are in use; nothing is in flight.

        Returns:
            Whether the plan has changed.
        """
        assert self._link is not None, "begin comes before"
        started_s = time.perf_counter()
        own = json.dumps([self.measurements.measured(exchanges).as_dict(), asdict(self._compute)])
        texts = gather_bytes(comm, own.encode(), name="sylvie.plan.measured")
        gathered = [json.loads(text) for text in texts]
        # As measured on rank 0, and so the same on every rank
        if self._misfit.is_wrong(gathered[0][0]["step_s"], self.report.predicted_step_s):
            self._link.calibrate()
            self._misfit.forget()
        else:
            self._link.probe()
        self._link.observe(self.measurements.observed())
        decision = self._decision(parameters, gathered) if comm.rank == 0 else b""
        text = gather_bytes(comm, decision, name="sylvie.plan.decision")[0]
        changed = self._follow(json.loads(text), parameters)
        if changed:
            self.measurements.forget_steps()
        self._took_s = time.perf_counter() - started_s
        self.measurements.begin_step()
        return changed

    @property
    def _is_frozen(self) -> bool:
        return self._policy.deterministic and self.plan is not None

    def _current(self, parameters: Sequence[ExchangedParameter]) -> Plan:
        """Return the plan in use, for all parameters: some may be newer than it."""
        names = {name for group in self.plan.groups for name in group.names} if self.plan else set()
        if self.plan is not None and names == {each.name for each in parameters}:
            return self.plan
        return plan_of(make_groups(parameters, self._policy, None, self.plan))

    def _decision(
        self, parameters: Sequence[ExchangedParameter], gathered: Sequence[list[Any]]
    ) -> bytes:
        """Plan, and return the decision as text. Rank 0 only."""
        assert self._link is not None
        link = self._link.model()
        ranks = [Measured(**each[0]) for each in gathered]
        slowest = max(ranks, key=lambda each: sum(each.intervals_s.values()))
        current = self._current(parameters)
        forward_s, layers = layers_of(slowest, parameters, self._policy, late=self._starts_late)
        compute = usual_costs([ComputeModel(**each[1]) for each in gathered])
        if self._starts_late:
            compute = replace(compute, beside_elements=math.inf)
        compute = corrected_costs(
            replace(compute, forward_s=forward_s), ranks, layers, current, link
        )
        options = PlanOptions(
            ladder(self._policy.min_density, self._policy.max_density),
            _kinds(self._policy, link.num_ranks),
            tuple(
                PlannedGroup(each.names, "dense")
                for each in plan_of(make_groups(parameters, self._policy, None)).groups
                if each.kind == "dense"
            ),
        )
        new = make_plan(layers, compute, link, options)
        keeps = self.plan is not None and not should_replace(current, new, layers, compute, link)
        plan = current if keeps else new
        return json.dumps(
            {
                "plan": plan_to_json(plan),
                "predicted_step_s": simulate(layers, plan, compute, link).step_s,
                "measured_step_s": ranks[0].step_s,
                "decides_after": self._next_decision(ranks[0].step_s),
            }
        ).encode()

    def _next_decision(self, step_s: float) -> int:
        """Return the number of steps after which the next decision is due. Rank 0 only."""
        every, done = self._policy.replan_every, self._num_steps
        put_off = min(self._took_s / (_SHARE * step_s), _MOST_PUT_OFF * every) if step_s > 0 else 0
        regular = every * max(done // every + 1, math.ceil((done + put_off) / every))
        return min([regular, *(early for early in _EARLY if early > done)])

    def _follow(self, decision: dict[str, Any], parameters: Sequence[ExchangedParameter]) -> bool:
        """Go on as rank 0 has decided; return whether the plan has changed."""
        assert self._link is not None
        plan = plan_from_json(decision["plan"], [each.name for each in parameters])
        self._decides_after = decision["decides_after"]
        before, digest = self.report, plan_digest(plan)
        changed = digest != before.digest
        self.report = PlanReport(
            plan,
            digest,
            before.num_changes + (changed and before.plan is not None),
            decision["predicted_step_s"],
            decision["measured_step_s"],
            self._link.model(),
        )
        return changed


def _kinds(policy: Lags, num_ranks: int) -> tuple[ExchangeKind, ...]:
    if policy.exchange != "auto":
        return ("dense", policy.exchange)
    return kinds_between(num_ranks)
