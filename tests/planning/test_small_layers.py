"""Small layers: groups that are divided, and riders of sparse groups."""

from __future__ import annotations

import pytest

from horovod_sylvie.planning.layers import LayerProfile
from horovod_sylvie.planning.plan import PlannedGroup
from horovod_sylvie.planning.small_layers import divisions, with_riders

LAYERS = [
    LayerProfile("b2", 1000, 0.001, can_be_sparse=False),
    LayerProfile("w1", 100_000, 0.01),
    LayerProfile("b1", 1000, 0.001, can_be_sparse=False),
    LayerProfile("w0", 100_000, 0.05),
    LayerProfile("b0", 1000, 0.001, can_be_sparse=False),
]
SMALL = (PlannedGroup(("b0", "b1", "b2"), "dense"),)


def test_groups_are_divided_in_the_order_of_backward() -> None:
    found = divisions(LAYERS, SMALL)
    assert found[0] == SMALL
    assert [[group.names for group in each] for each in found[1:]] == [
        [("b2", "b1"), ("b0",)],
        [("b2",), ("b1",), ("b0",)],
    ]


def test_nothing_small_is_not_divided() -> None:
    assert divisions(LAYERS, ()) == [()]


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        (False, [("w1", "b2"), ("w0", "b1"), ("b0",)]),
        (True, [("w1", "b2"), ("w0", "b1", "b0")]),
    ],
)
def test_small_layers_ride_with_the_next_carrier(
    waits: bool, expected: list[tuple[str, ...]]
) -> None:
    sparse = [PlannedGroup((name,), "allgather", 0.01) for name in ("w0", "w1")]
    found = with_riders(LAYERS, sparse, SMALL, waits=waits)
    assert [group.names for group in found] == expected
    assert [group.kind for group in found] == [
        "dense" if group.names == ("b0",) else "allgather" for group in found
    ]


def test_dense_groups_carry_nothing() -> None:
    groups = [PlannedGroup(("w1",), "dense"), PlannedGroup(("w0",), "allgather", 0.01)]
    found = with_riders(LAYERS, groups, SMALL, waits=True)
    assert [group.names for group in found] == [("w1",), ("w0", "b2", "b1", "b0")]
    dense = [PlannedGroup(("w1", "w0"), "dense")]
    assert with_riders(LAYERS, dense, SMALL, waits=True) == [*dense, *SMALL]
