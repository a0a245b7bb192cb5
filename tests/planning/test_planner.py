"""The planner: small cases against every possible plan, and what must hold of all plans."""

from __future__ import annotations

import cProfile
import pstats
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from horovod_sylvie.planning.lags_rule import lags_densities
from horovod_sylvie.planning.layers import BESIDE_ELEMENTS, ComputeModel, LayerProfile
from horovod_sylvie.planning.link_model import LinearCost, LinkModel, model_of_link
from horovod_sylvie.planning.plan import Plan, PlannedGroup, ladder
from horovod_sylvie.planning.planner import PlanOptions, make_plan
from horovod_sylvie.planning.timeline import simulate
from tests.planning.plan_cases import (
    best_step_s,
    fused_layer_lists,
    layer_lists,
    links,
    short_layer_lists,
)

COMPUTE = ComputeModel(forward_s=0.01)
BESIDE = ComputeModel(forward_s=0.01, beside_elements=BESIDE_ELEMENTS)
computes = st.sampled_from([COMPUTE, BESIDE])
DENSITIES = ladder(0.001, 0.05)


# A plan that begins slower than three others, and ends first
_OVERTAKES: Final = [
    *((100, 0.015625), (404001, 0.015625)),
    *((100, 0.015625), (160711, 0.0011011638671851608)),
]


@settings(max_examples=40, deadline=None)
@given(layers=layer_lists, link=links, compute=computes)
@example(
    layers=[LayerProfile(f"l{n}", *each, True) for n, each in enumerate(_OVERTAKES)],
    link=model_of_link(2, 1e7, 0.0, start_s=0.0),
    compute=COMPUTE,
)
def test_plan_of_few_layers_is_as_fast_as_the_best_of_all(
    layers: list[LayerProfile], link: LinkModel, compute: ComputeModel
) -> None:
    options = PlanOptions(DENSITIES[:1], tolerance=0.0)
    plan = make_plan(layers, compute, link, options)
    best = best_step_s(layers, compute, link, kinds=options.kinds, density=DENSITIES[0])
    assert simulate(layers, plan, compute, link).step_s <= best * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(
    layers=short_layer_lists,
    link=links,
    compute=computes,
    fused_layers=fused_layer_lists,
    data=st.data(),
)
def test_plan_beside_fused_groups_is_as_fast_as_the_best_of_all_kinds(
    layers: list[LayerProfile],
    link: LinkModel,
    compute: ComputeModel,
    fused_layers: list[LayerProfile],
    data: st.DataObject,
) -> None:
    every = data.draw(st.permutations([*layers, *fused_layers]))
    cut = data.draw(st.integers(0, len(fused_layers)))
    ordered = [layer.name for layer in every if not layer.can_be_sparse]
    fused = tuple(
        PlannedGroup(tuple(names), "dense") for names in (ordered[:cut], ordered[cut:]) if names
    )
    options = PlanOptions(DENSITIES[:1], ("dense", "allgather", "two-phase"), fused, tolerance=0.0)
    plan = make_plan(every, compute, link, options)
    best = best_step_s(every, compute, link, kinds=options.kinds, density=DENSITIES[0], fused=fused)
    assert simulate(every, plan, compute, link).step_s <= best * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(layers=layer_lists, link=links, compute=computes)
def test_plan_of_any_model_keeps_its_bounds(
    layers: list[LayerProfile], link: LinkModel, compute: ComputeModel
) -> None:
    options = PlanOptions(DENSITIES)
    plan = make_plan(layers, compute, link, options)
    planned = [name for group in plan.groups for name in group.names]
    assert sorted(planned) == sorted(layer.name for layer in layers)
    for group in plan.groups:
        assert group.density in ({1.0} if group.kind == "dense" else set(DENSITIES))
    step = simulate(layers, plan, compute, link).step_s
    dense = Plan(tuple(PlannedGroup((layer.name,), "dense") for layer in layers))
    sparse = Plan(tuple(PlannedGroup((layer.name,), "allgather", DENSITIES[0]) for layer in layers))
    for other in (dense, sparse):
        limit = simulate(layers, other, compute, link).step_s
        assert step <= limit * (1 + options.tolerance) * (1 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(
    layers=layer_lists,
    rates=st.tuples(st.floats(1e7, 1e11), st.floats(1e7, 1e11)),
    compute=computes,
)
def test_faster_link_never_makes_a_step_slower(
    layers: list[LayerProfile], rates: tuple[float, float], compute: ComputeModel
) -> None:
    options = PlanOptions(DENSITIES[:1], tolerance=0.0)
    steps = []
    for rate in sorted(rates):
        link = model_of_link(4, rate, 5e-5, start_s=1e-3)
        plan = make_plan(layers, compute, link, options)
        steps.append(simulate(layers, plan, compute, link).step_s)
    assert steps[1] <= steps[0] * (1 + 1e-9)


def test_fast_link_is_used_dense_and_slow_link_sparse() -> None:
    layers = [LayerProfile(f"l{i}", 1 << 20, 0.01) for i in range(4)]
    fast = make_plan(layers, COMPUTE, model_of_link(4, 1e12, 1e-6), PlanOptions(DENSITIES))
    assert {group.kind for group in fast.groups} == {"dense"}
    slow = make_plan(layers, COMPUTE, model_of_link(4, 1e7, 1e-6), PlanOptions(DENSITIES))
    assert {group.kind for group in slow.groups} == {"allgather"}
    assert min(group.density for group in slow.groups) == DENSITIES[0]


def test_costly_starts_merge_neighbours() -> None:
    layers = [LayerProfile(f"l{i}", 10_000, 1e-4) for i in range(6)]
    cheap = LinkModel(2, LinearCost(0, 1e-8), LinearCost(0, 1e-8), LinearCost(0, 1e-8))
    costly = LinkModel(2, LinearCost(0.01, 1e-8), LinearCost(0.01, 1e-8), LinearCost(0.01, 1e-8))
    quick = ComputeModel(0.01, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert len(make_plan(layers, quick, costly, PlanOptions(DENSITIES)).groups) == 1
    assert len(make_plan(layers, quick, cheap, PlanOptions(DENSITIES)).groups) > 1


def test_fused_groups_are_kept_where_nothing_can_carry_them() -> None:
    layers = [
        LayerProfile("w1", 100_000, 0.01),
        LayerProfile("b1", 10, 1e-5, can_be_sparse=False),
        LayerProfile("w0", 100_000, 0.01),
        LayerProfile("b0", 10, 1e-5, can_be_sparse=False),
    ]
    fused = PlannedGroup(("b1", "b0"), "dense")
    options = PlanOptions(DENSITIES, ("two-phase",), fused=(fused,))
    plan = make_plan(layers, COMPUTE, model_of_link(4, 1e8, 1e-5), options)
    assert fused in plan.groups
    assert plan.groups[-1] == fused  # in the order in which groups become ready


def num_calls_to_plan(num_layers: int) -> int:
    """Plan so many layers, and count the calls of functions that it takes."""
    layers = [LayerProfile(f"l{i}", 50_000 * (1 + i % 7), 1e-3) for i in range(num_layers)]
    options = PlanOptions(DENSITIES, ("dense", "allgather", "two-phase"))
    profile = cProfile.Profile()
    plan = profile.runcall(make_plan, layers, COMPUTE, model_of_link(4, 1e9, 5e-5), options)
    assert sum(len(group.names) for group in plan.groups) == num_layers
    return int(pstats.Stats(profile).total_calls)


def test_many_layers_are_planned_soon_enough_to_do_it_in_training() -> None:
    few, many = num_calls_to_plan(80), num_calls_to_plan(160)
    assert many < 3 * few  # as many times as layers, not their square
    assert many < 1_000_000  # some tenths of a second


def test_two_phases_are_taken_between_many_ranks_only() -> None:
    layers = [LayerProfile(f"l{i}", 1 << 20, 0.01) for i in range(4)]
    options = PlanOptions(DENSITIES, ("dense", "allgather", "two-phase"))
    few = make_plan(layers, COMPUTE, model_of_link(2, 1e8, 5e-5, start_s=1e-3), options)
    assert "two-phase" not in {group.kind for group in few.groups}
    many = make_plan(layers, COMPUTE, model_of_link(64, 1e8, 5e-5, start_s=1e-3), options)
    assert many.groups[-1].kind == "two-phase"  # nothing hides the last one


@pytest.mark.parametrize(
    ("following", "density"),
    [
        (0.0, 0.001),  # nothing to hide behind
        (0.0111, 0.001),  # 1 ms selection and 10 ms start leave 0.1 ms: 0.00025
        (0.0310, 0.05),  # 20 ms: 0.05 exactly
        (1.0, 0.05),
    ],
)
def test_rule_of_the_paper_fills_the_next_layers_time(following: float, density: float) -> None:
    layers = [LayerProfile("l", 100_000, 0.5), LayerProfile("next", 10, following)]
    compute = ComputeModel(0.0, 1e-8, 0.0, 0.0, 0.0, 0.0, 0.0)
    link = LinkModel(
        2, allreduce=LinearCost(0, 0), allgather=LinearCost(0.01, 1e-6), alltoall=LinearCost(0, 0)
    )
    found = lags_densities(layers, compute, link, min_density=0.001, max_density=0.05)
    assert found[0] == pytest.approx(density)
    assert found[1] == 0.001


@pytest.mark.parametrize(("start_s", "num_groups"), [(0.01, 1), (0.0, 2)])
def test_small_layers_ride_along_where_an_operation_costs_more_than_their_bytes(
    start_s: float, num_groups: int
) -> None:
    layers = [
        LayerProfile("w0", 100_000, 0.01),
        LayerProfile("b0", 1000, 0.0, can_be_sparse=False),
    ]
    byte_s = 1e-7
    link = LinkModel(
        8,
        allreduce=LinearCost(start_s, 2 * 7 / 8 * byte_s),
        allgather=LinearCost(start_s, 7 * byte_s),
        alltoall=LinearCost(start_s, byte_s),
    )
    fused = (PlannedGroup(("b0",), "dense"),)
    options = PlanOptions(DENSITIES, ("allgather",), fused)
    plan = make_plan(layers, ComputeModel(0.01, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), link, options)
    assert len(plan.groups) == num_groups
    assert {name for group in plan.groups for name in group.names} == {"w0", "b0"}


def test_many_small_layers_leave_in_parts_where_the_link_is_slow() -> None:
    layers = [LayerProfile(f"b{i}", 1000, 0.005, can_be_sparse=False) for i in range(16)]
    fused = (PlannedGroup(tuple(layer.name for layer in layers), "dense"),)
    options = PlanOptions((0.01,), ("dense",), fused)
    slow = make_plan(layers, COMPUTE, model_of_link(2, 1e7, 1e-5), options)
    assert len(slow.groups) > 4
    assert len(slow.groups[-1].names) < 4
    starts = make_plan(layers, COMPUTE, model_of_link(2, 1e12, 1e-5, start_s=0.02), options)
    assert len(starts.groups) <= 2
