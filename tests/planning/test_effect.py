"""Effects: composed in any way, they are the step that `simulate` runs."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod_sylvie.planning.effect import Effect
from horovod_sylvie.planning.layers import ComputeModel, LayerProfile
from horovod_sylvie.planning.link_model import LinkModel
from horovod_sylvie.planning.plan import ExchangeKind, Plan, PlannedGroup
from horovod_sylvie.planning.timeline import GroupCost, group_cost, simulate
from tests.planning.plan_cases import layer_lists, links

COMPUTES = [ComputeModel(forward_s=0.01, beside_elements=least) for least in (math.inf, 1e5, 0.0)]
kinds: st.SearchStrategy[ExchangeKind] = st.sampled_from(["dense", "allgather", "two-phase"])


@given(layers=layer_lists, link=links, data=st.data(), density=st.floats(0.001, 1.0))
@pytest.mark.parametrize("compute", COMPUTES)
def test_effect_of_a_plan_is_its_step(
    layers: list[LayerProfile],
    link: LinkModel,
    data: st.DataObject,
    density: float,
    compute: ComputeModel,
) -> None:
    groups, effects = [], []
    arrivals = list(accumulate((each.backward_s for each in layers), initial=compute.forward_s))[1:]
    for layer, arrival_s in zip(layers, arrivals, strict=True):
        kind = data.draw(kinds)
        groups.append(PlannedGroup((layer.name,), kind, 1.0 if kind == "dense" else density))
        cost = group_cost(groups[-1], [layer], compute, link)
        effects.append(Effect.of(arrival_s, cost))
    step_s = simulate(layers, Plan(tuple(groups)), compute, link).step_s
    cut = data.draw(st.integers(0, len(effects)))
    parts = [
        list(accumulate(part, Effect.then, initial=Effect()))[-1]
        for part in (effects[:cut], effects[cut:])
    ]
    assert parts[0].then(parts[1]).step_s(arrivals[-1]) == pytest.approx(step_s, rel=1e-12)


def test_group_waits_for_its_gradient_or_for_the_link() -> None:
    first = Effect.of(1.0, GroupCost(0.1, 0.0, 2.0, 0.3, 0.4, 0.0))
    assert first == pytest.approx((0.1, 0.0, -math.inf, 2.0, -math.inf, 3.1, 0.7))
    # there at 2.0 and ready at 2.3, the first one's 0.1 included; the link is free at 3.1
    waits = first.then(Effect.of(2.0, GroupCost(0.2, 0.0, 1.0, 0.0, 0.0, 0.0)))
    assert waits == pytest.approx((0.3, 0.0, -math.inf, 3.0, -math.inf, 4.1, 0.7))
    # there at 5.0: the link waits
    late = first.then(Effect.of(5.0, GroupCost(0.2, 0.0, 1.0, 0.0, 0.0, 0.0)))
    assert late == pytest.approx((0.3, 0.0, -math.inf, 3.0, -math.inf, 6.3, 0.7))
    assert late.step_s(5.0) == pytest.approx(7.0)
    assert late.step_s(7.0) == pytest.approx(8.0)  # backward ends at 7.3


def test_group_waits_for_the_thread_that_selects() -> None:
    first = Effect.of(1.0, GroupCost(0.1, 4.0, 2.0, 0.0, 0.0, 0.0))
    assert first == pytest.approx((0.1, 4.0, 5.1, 2.0, 6.0, 7.1, 0.0))
    # there at 2.3; the thread is free at 5.1 and done at 6.1, the link free at 7.1
    second = first.then(Effect.of(2.0, GroupCost(0.2, 1.0, 1.0, 0.0, 0.0, 0.0)))
    assert second == pytest.approx((0.3, 5.0, 6.1, 3.0, 7.0, 8.1, 0.0))
    # what is prepared in the hook does not wait for the thread, but for the link
    third = first.then(Effect.of(2.0, GroupCost(0.2, 0.0, 1.0, 0.0, 0.0, 0.0)))
    assert third == pytest.approx((0.3, 4.0, 5.1, 3.0, 7.0, 8.1, 0.0))
    assert third.step_s(2.0) == pytest.approx(8.1)


def test_no_group_does_nothing() -> None:
    some = Effect(0.1, 1.0, 1.6, 2.0, 3.0, 3.6, 0.7)
    assert Effect().then(some) == some
    assert some.then(Effect()) == some
    assert Effect().step_s(0.5) == 0.5
