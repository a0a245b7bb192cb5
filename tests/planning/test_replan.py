"""When a new plan replaces the current one: by its step, by what it sends, and otherwise not."""

from __future__ import annotations

import pytest

from horovod_sylvie.planning.layers import ComputeModel, LayerProfile
from horovod_sylvie.planning.link_model import LinearCost, LinkModel
from horovod_sylvie.planning.plan import Plan, PlannedGroup
from horovod_sylvie.planning.replan import elements_sent, should_replace

# A step is one second, and what a sparse group puts on the link comes on top: 4 bytes an element
LAYERS = [LayerProfile("w", 100_000, 0.5), LayerProfile("b", 10, 0.0, can_be_sparse=False)]
FREE = ComputeModel(0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
NOTHING = LinearCost(0.0, 0.0)


def plan(density: float) -> Plan:
    return Plan((PlannedGroup(("w",), "allgather", density), PlannedGroup(("b",), "dense")))


def link(s_per_element: float) -> LinkModel:
    return LinkModel(2, NOTHING, LinearCost(0.0, s_per_element / 4), NOTHING)


def replaces(current: float, new: float, s_per_element: float) -> bool:
    return should_replace(plan(current), plan(new), LAYERS, FREE, link(s_per_element))


@pytest.mark.parametrize(
    ("current", "new", "s_per_element", "replaced"),
    [
        (0.010, 0.005, 7e-5, True),  # 1.070 to 1.035 s: 3.3 % shorter, half as much
        (0.010, 0.005, 6e-5, False),  # 1.060 to 1.030 s: 2.8 % shorter
        (0.010, 0.0125, 1e-9, True),  # no longer, 1.25 times as much
        (0.010, 0.0124, 1e-9, False),  # no longer, 1.24 times as much
        (0.010, 0.020, 5e-6, True),  # 1.0050 to 1.0100 s: 0.498 % longer, twice as much
        (0.010, 0.020, 5.1e-6, False),  # 1.0051 to 1.0102 s: 0.507 % longer
        (0.010, 0.005, 1e-9, False),  # no longer, half as much
        (0.010, 0.010, 1e-5, False),  # the same
    ],
)
def test_plan_is_replaced_beyond_either_ratio(
    current: float, new: float, s_per_element: float, replaced: bool
) -> None:
    assert replaces(current, new, s_per_element) is replaced


def test_plan_of_layers_that_never_are_sparse_stays() -> None:
    only = [LAYERS[1]]
    dense = Plan((PlannedGroup(("b",), "dense"),))
    assert not should_replace(dense, dense, only, FREE, link(1e-5))
    assert elements_sent(dense, only) == 0


def test_shorter_step_by_other_groups_replaces() -> None:
    layers = [LayerProfile(f"l{i}", 1000, 0.1) for i in range(4)]
    names = tuple(layer.name for layer in layers)
    costly = LinkModel(2, NOTHING, LinearCost(0.2, 0.0), NOTHING)
    alone = Plan(tuple(PlannedGroup((name,), "allgather", 0.01) for name in names))
    merged = Plan((PlannedGroup(names, "allgather", 0.01),))
    # alone: the first is there at 0.6 s, then 4 starts; merged: at 0.9 s, one start
    assert should_replace(alone, merged, layers, FREE, costly)
    assert not should_replace(merged, alone, layers, FREE, costly)


def test_elements_sent_are_those_that_a_plan_decides_on() -> None:
    layers = [*LAYERS, LayerProfile("v", 1000, 0.1)]
    whole = Plan((PlannedGroup(("w",), "dense"), PlannedGroup(("v",), "two-phase", 0.0015)))
    assert elements_sent(whole, layers) == 100_000 + 2
    assert elements_sent(plan(0.01), LAYERS) == 1000
