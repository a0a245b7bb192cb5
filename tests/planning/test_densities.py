"""Densities rise as far as the step allows, and no further."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horovod_sylvie.planning.densities import raise_densities
from horovod_sylvie.planning.layers import ComputeModel, LayerProfile
from horovod_sylvie.planning.link_model import LinearCost, LinkModel
from horovod_sylvie.planning.plan import ExchangeKind, Plan, PlannedGroup, ladder
from horovod_sylvie.planning.timeline import simulate
from tests.planning.plan_cases import layer_lists, links

COMPUTE = ComputeModel(forward_s=0.01)
FREE = ComputeModel(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
LADDER = ladder(0.001, 0.05)
# One second for 1000 selected elements; dense travels ten times as fast
SLOW = LinkModel(
    2, LinearCost(0.0, 2.5e-5), LinearCost(0.0, 2.5e-4), alltoall=LinearCost(0.0, 2.5e-4)
)


def alone(layers: list[LayerProfile], kind: ExchangeKind, density: float) -> Plan:
    return Plan(tuple(PlannedGroup((layer.name,), kind, density) for layer in layers))


def raised(layers: list[LayerProfile], limit_s: float, *, may_be_dense: bool = False) -> Plan:
    return raise_densities(
        layers,
        FREE,
        SLOW,
        alone(layers, "allgather", 0.01),
        densities=(0.01, 0.02, 0.03),
        may_be_dense=may_be_dense,
        limit_s=limit_s,
    )


@settings(deadline=None)
@given(
    layers=layer_lists,
    link=links,
    kind=st.sampled_from(["allgather", "two-phase"]),
    slack=st.floats(0.0, 1.0),
)
def test_no_group_could_be_one_rung_denser(
    layers: list[LayerProfile], link: LinkModel, kind: ExchangeKind, slack: float
) -> None:
    lowest = alone(layers, kind, LADDER[0])
    limit_s = simulate(layers, lowest, COMPUTE, link).step_s * (1.0 + slack) * (1 + 1e-12)
    plan = raise_densities(
        layers, COMPUTE, link, lowest, densities=LADDER, may_be_dense=False, limit_s=limit_s
    )
    assert simulate(layers, plan, COMPUTE, link).step_s <= limit_s * (1 + 1e-12)
    for number, group in enumerate(plan.groups):
        assert (group.names, group.kind) == (lowest.groups[number].names, kind)
        rung = LADDER.index(group.density)
        if rung + 1 < len(LADDER):
            denser = replace(group, density=LADDER[rung + 1])
            tried = Plan((*plan.groups[:number], denser, *plan.groups[number + 1 :]))
            assert simulate(layers, tried, COMPUTE, link).step_s > limit_s * (1 - 1e-12)


@pytest.mark.parametrize(
    ("limit_s", "densities"),
    [
        (0.30, [0.01, 0.01, 0.01]),  # 100 elements each: 0.3 s
        (0.45, [0.02, 0.01, 0.01]),
        (0.61, [0.02, 0.02, 0.02]),  # all to one rung before any to the next
        (0.75, [0.03, 0.02, 0.02]),
        (9.00, [0.03, 0.03, 0.03]),
    ],
)
def test_lowest_rise_first(limit_s: float, densities: list[float]) -> None:
    layers = [LayerProfile(f"l{number}", 10_000, 0.0) for number in range(3)]
    assert [group.density for group in raised(layers, limit_s).groups] == densities


def test_rung_that_does_not_fit_one_group_may_fit_a_later_smaller_one() -> None:
    layers = [LayerProfile("large", 10_000, 0.0), LayerProfile("small", 1000, 0.0)]
    # 0.11 s; the small one takes 0.01 s more on each rung, the large one 0.1 s
    assert [group.density for group in raised(layers, 0.135).groups] == [0.01, 0.03]


def test_group_becomes_dense_where_that_fits() -> None:
    layers = [LayerProfile("large", 10_000, 0.0), LayerProfile("small", 1000, 0.0)]
    # dense: 1 s and 0.1 s
    assert [group.kind for group in raised(layers, 0.25, may_be_dense=True).groups] == [
        "allgather",
        "dense",
    ]
    assert [group.kind for group in raised(layers, 1.11, may_be_dense=True).groups] == [
        "dense",
        "dense",
    ]
    assert [group.kind for group in raised(layers, 1.11).groups] == ["allgather", "allgather"]


def test_dense_groups_stay_as_they_are() -> None:
    layers = [LayerProfile("w", 10_000, 0.0), LayerProfile("b", 10, 0.0, can_be_sparse=False)]
    plan = Plan((PlannedGroup(("w",), "allgather", 0.01), PlannedGroup(("b",), "dense")))
    found = raise_densities(
        layers, FREE, SLOW, plan, densities=(0.01, 0.03), may_be_dense=False, limit_s=9.0
    )
    assert found == Plan((PlannedGroup(("w",), "allgather", 0.03), plan.groups[1]))
