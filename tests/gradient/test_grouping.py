"""The plan of a model: which parameters travel together, and how."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import horovod_sylvie as hvs
from horovod_sylvie.gradient.grouping import FUSED_ELEMENTS, Group, make_groups
from horovod_sylvie.gradient.parameter import ExchangedParameter

SHAPES = [(), (3,), (4, 5), (2, 3, 2), (1, 1), (300,), (40, 30)]
DTYPES = [torch.float32, torch.bfloat16, torch.float64]
POLICIES = [
    hvs.Compression.none,
    hvs.Compression.bf16,
    hvs.Compression.topk(0.1, min_elements=10),
]


def parameter(name: str, *shape: int, dtype: torch.dtype = torch.float32) -> ExchangedParameter:
    return ExchangedParameter(name, torch.empty(shape, dtype=dtype))


def names_of(groups: list[Group]) -> list[tuple[str, list[str]]]:
    return [(group.kind, [each.name for each in group.parameters]) for group in groups]


models = st.lists(st.tuples(st.sampled_from(SHAPES), st.sampled_from(DTYPES)), max_size=12)


@settings(max_examples=200, deadline=None)
@given(models, st.sampled_from(POLICIES), st.data())
def test_plan_holds_every_parameter_once_and_is_reproducible(
    model: list[tuple[Any, Any]], policy: object, data: st.DataObject
) -> None:
    parameters = [
        parameter(f"p{number}", *shape, dtype=dtype) for number, (shape, dtype) in enumerate(model)
    ]
    numbers = data.draw(st.permutations(range(len(model))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(model)), max_size=3)))
    lists = tuple(
        tuple(f"p{number}" for number in numbers[start:end])
        for start, end in zip([0, *cuts], cuts, strict=False)
    )
    for groups in (None, data.draw(st.integers(0, 15)), lists):
        plan = make_groups(parameters, policy, groups)
        members = [each.name for group in plan for each in group.parameters]
        assert sorted(members) == sorted(each.name for each in parameters)
        assert all(group.parameters for group in plan)
        assert len({group.name for group in plan}) == len(plan)
        # Equal parameters of another process make an equal plan
        again = make_groups(
            [parameter(f"p{n}", *shape, dtype=dtype) for n, (shape, dtype) in enumerate(model)],
            policy,
            groups,
        )
        assert names_of(plan) == names_of(again)
        assert [group.name for group in plan] == [group.name for group in again]
        if groups == lists:  # what is together was asked to be
            for group in plan:
                asked = {
                    next((n for n, each in enumerate(lists) if p.name in each), p.name)
                    for p in group.parameters
                }
                assert len(asked) == 1


def test_top_k_sends_large_matrices_alone_and_fuses_the_rest() -> None:
    parameters = [
        parameter("a.weight", 4, 5),
        parameter("a.bias", 30),
        parameter("b.weight", 2, 2),
        parameter("c.weight", 5, 5),
        parameter("d.weight", 5, 5, dtype=torch.float64),
        parameter(
            "e",
        ),
    ]
    policy = hvs.Compression.topk(0.1, min_elements=20)
    # In the order in which backward completes them: the last of a group decides
    assert names_of(make_groups(parameters, policy, None)) == [
        ("fused", ["e", "b.weight", "a.bias"]),
        ("fused", ["d.weight"]),
        ("topk", ["c.weight"]),
        ("topk", ["a.weight"]),
    ]


def test_fused_vector_is_closed_at_its_size() -> None:
    half = FUSED_ELEMENTS // 2
    parameters = [parameter(f"p{n}", half) for n in range(5)]
    assert names_of(make_groups(parameters, hvs.Compression.bf16, None)) == [
        ("bf16", ["p4", "p3"]),
        ("bf16", ["p2", "p1"]),
        ("bf16", ["p0"]),
    ]


@pytest.mark.parametrize("groups", [None, 0])
def test_horovods_compressors_send_each_parameter_alone(groups: int | None) -> None:
    parameters = [parameter("a", 2), parameter("b", 3)]
    expected = [("allreduce", ["b"]), ("allreduce", ["a"])]
    assert names_of(make_groups(parameters, hvs.Compression.fp16, groups)) == expected


def test_number_of_groups_splits_in_order_of_definition() -> None:
    parameters = [parameter(f"p{n}", 2) for n in range(5)]
    plan = make_groups(parameters, hvs.Compression.none, 2)
    assert names_of(plan) == [("allreduce", ["p3", "p4"]), ("allreduce", ["p0", "p1", "p2"])]


def test_lists_leave_the_unnamed_alone() -> None:
    parameters = [parameter(f"p{n}", 2) for n in range(4)]
    plan = make_groups(parameters, hvs.Compression.none, (("p3", "p0"), ()))
    assert names_of(plan) == [
        ("allreduce", ["p3", "p0"]),
        ("allreduce", ["p2"]),
        ("allreduce", ["p1"]),
    ]


def test_lists_are_split_by_how_their_parameters_travel() -> None:
    parameters = [parameter("w", 4, 5), parameter("b", 5), parameter("v", 5, 5)]
    plan = make_groups(parameters, POLICIES[2], (("w", "b", "v"),))
    assert names_of(plan) == [("topk", ["w", "v"]), ("fused", ["b"])]
