"""One step on paper, against arithmetic by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from horovod_sylvie.planning.layers import ComputeModel, LayerProfile
from horovod_sylvie.planning.link_model import LinearCost, LinkModel
from horovod_sylvie.planning.plan import Plan, PlannedGroup, ladder, num_selected
from horovod_sylvie.planning.timeline import group_cost, simulate, speed_bound

LAYERS = [LayerProfile("c", 1000, 0.010), LayerProfile("b", 2000, 0.020)]
FREE = ComputeModel(0.030, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
LINK = LinkModel(
    2,
    allreduce=LinearCost(0.001, 1e-5),
    allgather=LinearCost(0.002, 2e-5),
    alltoall=LinearCost(0.003, 3e-5),
)


def test_dense_groups_overlap_with_backward_and_wait_for_each_other() -> None:
    plan = Plan((PlannedGroup(("c",), "dense"), PlannedGroup(("b",), "dense")))
    timeline = simulate(LAYERS, plan, FREE, LINK)
    # c: ready at 40 ms, 1 + 40 ms on the link; b: ready at 60, waits until 81, 1 + 80 ms
    assert [span.start_s for span in timeline.spans] == pytest.approx([0.040, 0.081])
    assert timeline.exchange_end_s == pytest.approx(0.162)
    assert timeline.backward_end_s == pytest.approx(0.060)
    assert timeline.exposed_s == pytest.approx(0.102)
    assert timeline.step_s == pytest.approx(0.162)
    assert timeline.compute_s == pytest.approx(0.060)


def test_sparse_group_of_two_layers_starts_with_the_last_one() -> None:
    plan = Plan((PlannedGroup(("c", "b"), "allgather", 0.01),))
    compute = ComputeModel(0.030, 1e-6, 1e-4, 2e-6, 1e-5, 0.0, 0.001)
    timeline = simulate(LAYERS, plan, compute, LINK)
    # 10 + 20 selected: 3 + 3 + 1 ms to prepare, 2 + 2.4 ms on the link, 6 + 0.6 ms to decode
    assert timeline.spans[0].ready_s == pytest.approx(0.067)
    assert timeline.exchange_end_s == pytest.approx(0.0714)
    assert timeline.step_s == pytest.approx(0.0714 + 0.0066)


def test_large_groups_are_selected_from_beside_backward_one_after_the_other() -> None:
    plan = Plan((PlannedGroup(("c",), "allgather", 0.01), PlannedGroup(("b",), "allgather", 0.01)))
    compute = ComputeModel(0.030, 2e-5, 0.0, 0.0, 0.0, 0.0, 0.001, beside_elements=1000)
    timeline = simulate(LAYERS, plan, compute, LINK)
    # c: 40 ms, 1 in the hook, 20 in the thread; b: 61 + 1, and 40 in the thread, which is free
    assert [span.ready_s for span in timeline.spans] == pytest.approx([0.061, 0.102])
    assert timeline.backward_end_s == pytest.approx(0.062)
    assert timeline.exchange_end_s == pytest.approx(0.102 + 0.002 + 80 * 2e-5)
    # At 1001 elements c is selected from in the hook; so b comes 20 ms later
    in_hook = simulate(LAYERS, plan, replace(compute, beside_elements=1001), LINK)
    assert [span.ready_s for span in in_hook.spans] == pytest.approx([0.061, 0.122])
    assert in_hook.backward_end_s == pytest.approx(0.082)
    # Twice as slow, the thread is still busy with c when b is there, at 62 ms
    slow = simulate(LAYERS, plan, replace(compute, select_s_per_element=4e-5), LINK)
    assert [span.ready_s for span in slow.spans] == pytest.approx([0.081, 0.161])
    assert slow.backward_end_s == pytest.approx(0.062)


def test_two_phases_send_what_owners_selected_after_backward() -> None:
    plan = Plan((PlannedGroup(("c", "b"), "two-phase", 0.01),))
    timeline = simulate(LAYERS, plan, FREE, LINK)
    # 120 bytes: 3 + 3.6 ms; then 60 bytes: 2 + 1.2 ms
    assert timeline.exchange_end_s == pytest.approx(0.060 + 0.0066 + 0.0032)


def test_owner_adds_what_all_ranks_selected_and_selects_again() -> None:
    compute = ComputeModel(0.0, 1e-6, 1e-4, 2e-6, 1e-5, 0.0, 0.001)
    group = PlannedGroup(("c", "b"), "two-phase", 0.01)
    cost = group_cost(group, LAYERS, compute, LINK)
    assert cost.prepare_s == pytest.approx(0.003 + 0.003 + 0.001)
    assert cost.exchange_s == pytest.approx(0.003 + 120 * 3e-5)
    # 1500 elements cleared, 2 x 15 added, 1500 looked at, 15 selected; then 60 bytes
    owner_s = 0.003 + 0.0003 + 0.0015 + 0.0015 + 0.001
    assert cost.finish_s == pytest.approx(owner_s + 0.002 + 60 * 2e-5)
    assert cost.decode_s == pytest.approx(0.006 + 0.0003)  # 2 x 15 come back
    assert cost.nbytes == 180


def test_one_dense_layer_is_exchanged_in_place_and_several_are_copied() -> None:
    compute = ComputeModel(copy_s_per_element=1e-6, group_s=0.001)
    one = group_cost(PlannedGroup(("b",), "dense"), LAYERS[1:], compute, LINK)
    assert one == pytest.approx((0.001, 0.0, 0.081, 0.0, 0.0, 8000))
    two = group_cost(PlannedGroup(("c", "b"), "dense"), LAYERS, compute, LINK)
    assert two == pytest.approx((0.004, 0.0, 0.121, 0.0, 0.003, 12000))


def test_ladder_climbs_from_the_lowest_to_the_highest() -> None:
    rungs = ladder(0.001, 0.05)
    assert rungs[0] == 0.001
    assert rungs[-1] == 0.05
    ratios = [above / below for below, above in itertools.pairwise(rungs)]
    assert all(1.0 < ratio <= 1.2501 for ratio in ratios)
    assert ladder(0.01, 0.01) == (0.01,)


def test_selected_elements_are_rounded_up_and_bounded() -> None:
    assert [num_selected(size, 0.01) for size in (1, 100, 1001)] == [1, 1, 11]
    assert num_selected(3, 1.0) == 3


@pytest.mark.parametrize(
    ("exchange", "bound"),
    [(0.0, 1.0), (0.2, (0.1 + 0.2 + 0.2) / 0.3), (2.0, (0.1 + 0.2 + 2.0) / 2.1)],
)
def test_speed_bound_is_that_of_perfect_overlap(exchange: float, bound: float) -> None:
    assert speed_bound(0.1, 0.2, exchange) == pytest.approx(bound)


def test_layer_that_cannot_be_sparse_rides_along_whole() -> None:
    layers = [LayerProfile("c", 1000, 0.0), LayerProfile("bias", 30, 0.0, can_be_sparse=False)]
    compute = ComputeModel(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    cost = group_cost(PlannedGroup(("c", "bias"), "allgather", 0.01), layers, compute, LINK)
    assert cost.nbytes == 4 * (10 + 30)
