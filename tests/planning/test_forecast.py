"""The figures behind `plan`: each way of exchange by the same model, and the words for it."""

from __future__ import annotations

import pytest

from horovod_sylvie.planning.forecast import forecast, fuse_small
from horovod_sylvie.planning.layers import ComputeModel, LayerProfile
from horovod_sylvie.planning.link_model import model_of_link
from horovod_sylvie.planning.plan import FUSED_ELEMENTS, PlannedGroup

LAYERS = [
    LayerProfile("1.bias", 1000, 1e-5, can_be_sparse=False),
    LayerProfile("1.weight", 4_000_000, 0.02),
    LayerProfile("0.bias", 1000, 1e-5, can_be_sparse=False),
    LayerProfile("0.weight", 4_000_000, 0.02),
]
COMPUTE = ComputeModel(forward_s=0.02)


def test_slow_link_pays_and_fast_link_does_not() -> None:
    slow = forecast(LAYERS, COMPUTE, model_of_link(4, 1e8, 5e-5))
    assert slow.pays
    assert slow.steps_s["planned"] < 0.1 * slow.best_dense_s
    kinds = {each.group.kind for each in slow.groups if "1.weight" in each.group.names}
    assert kinds == {"allgather"}
    fast = forecast(LAYERS, COMPUTE, model_of_link(4, 1e12, 1e-6))
    assert not fast.pays
    assert {each.group.kind for each in fast.groups} == {"dense"}


def test_ways_of_exchange_are_ordered_as_their_bytes_on_a_slow_link() -> None:
    steps = forecast(LAYERS, COMPUTE, model_of_link(4, 1e7, 0.0)).steps_s
    ordered = ["top-k 0.1 %", "top-k 1 %", "dense float16", "dense float32"]
    assert [steps[way] for way in ordered] == sorted(steps[way] for way in ordered)
    # 32 MB at 10 Mbit/s: 2 * 3/4 of the bytes, for float32
    assert steps["dense float32"] == pytest.approx(1.5 * 8_002_000 * 4 * 8e-7, rel=0.01)


def test_every_layer_is_in_one_group_of_the_forecast() -> None:
    found = forecast(LAYERS, COMPUTE, model_of_link(2, 1e9, 5e-5))
    names = [name for each in found.groups for name in each.group.names]
    assert sorted(names) == sorted(layer.name for layer in LAYERS)
    assert sum(each.num_elements for each in found.groups) == 8_002_000
    assert sum(each.backward_s for each in found.groups) == pytest.approx(0.04002)
    assert found.compute_s == pytest.approx(0.06002)
    assert found.bound > 1.0


def test_small_layers_are_fused_until_they_are_worth_a_message() -> None:
    small = [LayerProfile(f"l{n}", FUSED_ELEMENTS // 2, 0.0, can_be_sparse=False) for n in range(5)]
    assert fuse_small(small) == (
        PlannedGroup(("l0", "l1"), "dense"),
        PlannedGroup(("l2", "l3"), "dense"),
        PlannedGroup(("l4",), "dense"),
    )
    assert fuse_small(LAYERS) == (PlannedGroup(("1.bias", "0.bias"), "dense"),)
