"""A plan as text: there and back, equal digests for equal plans, and nothing taken on trust."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod_sylvie.planning.plan import Plan, PlannedGroup
from horovod_sylvie.planning.plan_text import plan_digest, plan_from_json, plan_to_json

NAMES = ("3.weight", "2.weight", "1.weight", "1.bias")
PLAN = Plan(
    (
        PlannedGroup(("3.weight", "2.weight"), "allgather", 0.1 / 3),
        PlannedGroup(("1.weight",), "two-phase", 0.001),
        PlannedGroup(("1.bias",), "dense"),
    )
)


def test_text_of_a_plan_is_as_it_is_written_down() -> None:
    assert plan_to_json(Plan((PlannedGroup(("a",), "dense"),))) == (
        '{"format":"horovod_sylvie.plan",'
        '"groups":[{"density":1.0,"kind":"dense","names":["a"]}],"version":1}'
    )


def test_plan_comes_back_from_text_and_from_bytes() -> None:
    text = plan_to_json(PLAN)
    assert plan_from_json(text, NAMES) == PLAN
    assert plan_from_json(text.encode(), sorted(NAMES)) == PLAN
    assert plan_from_json(plan_to_json(Plan(())), ()) == Plan(())


def test_plan_may_lack_layers_where_that_is_allowed() -> None:
    text = plan_to_json(PLAN)
    assert plan_from_json(text, [*NAMES, "table"], complete=False) == PLAN
    with pytest.raises(ValueError, match="expected every layer of this model"):
        plan_from_json(text, [*NAMES, "table"])
    with pytest.raises(ValueError, match="expected layers of this model only"):
        plan_from_json(text, NAMES[1:], complete=False)


@given(st.lists(st.text(min_size=1), unique=True), st.floats(1e-9, 1.0))
def test_any_name_and_density_comes_back_exactly(names: list[str], density: float) -> None:
    plan = Plan(tuple(PlannedGroup((name,), "allgather", density) for name in names))
    assert plan_from_json(plan_to_json(plan), names) == plan


def test_digest_differs_where_plans_differ() -> None:
    same = Plan(PLAN.groups)
    others = [
        Plan(PLAN.groups[::-1]),
        Plan((*PLAN.groups[:2], PlannedGroup(("1.bias",), "allgather"))),
        Plan((PLAN.groups[0], PlannedGroup(("1.weight",), "two-phase", 0.002), PLAN.groups[2])),
        Plan((PlannedGroup(("2.weight", "3.weight"), "allgather", 0.1 / 3), *PLAN.groups[1:])),
    ]
    assert plan_digest(same) == plan_digest(PLAN)
    assert len(plan_digest(PLAN)) == 32
    assert len({plan_digest(PLAN), *map(plan_digest, others)}) == 5
    assert plan_digest(Plan((PlannedGroup(("a",), "dense", 1),))) == plan_digest(
        Plan((PlannedGroup(("a",), "dense", 1.0),))
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected JSON in 'text', got ''"),
        (b"\xff\xfe", "expected JSON in 'text', got b'"),
        ("[" * 100_000, "expected JSON in 'text', got '"),
        ('{"groups":' + "9" * 5000 + "}", "expected JSON in 'text', got '"),
        ("[]", r"expected a JSON object in 'text', got \[\]"),
        ("{}", "expected format 'horovod_sylvie.plan', version 1 in 'text', got None, None"),
    ],
)
def test_text_that_is_no_plan_is_refused(text: str | bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^plan_from_json: {complaint}.*Give what plan_to_json"):
        plan_from_json(text, NAMES)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"version": 2}, "version 1 in 'text', got 'horovod_sylvie.plan', 2"),
        ({"format": "x"}, "got 'x', 1"),
        ({"groups": {}}, "a list of groups in 'text', got {}"),
        ({"groups": [7]}, "names, kind and density of each group in 'text', got 7"),
    ],
)
def test_wrong_field_of_a_plan_is_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        plan_from_json(json.dumps(json.loads(plan_to_json(PLAN)) | change), NAMES)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"more": 1}, "expected names, kind and density of each group"),
        ({"names": []}, r"expected a list of at least one name in each group in 'text', got \[\]"),
        ({"names": "1.weight"}, "at least one name in each group in 'text', got '1.weight'"),
        ({"names": [1]}, r"at least one name in each group in 'text', got \[1\]"),
        ({"kind": "ring"}, "expected a kind among dense, allgather, two-phase in 'text', got 'r"),
        ({"kind": ["dense"]}, "expected a kind among dense"),
        ({"density": 0}, r"expected a density in \(0, 1\] for \['1.weight'\] in 'text', got 0"),
        ({"density": 1.5}, r"a density in \(0, 1\]"),
        ({"density": float("nan")}, r"a density in \(0, 1\] .* got nan"),
        ({"density": float("inf")}, r"a density in \(0, 1\] .* got inf"),
        ({"density": True}, r"a density in \(0, 1\] .* got True"),
        ({"density": "0.1"}, r"a density in \(0, 1\] .* got '0.1'"),
        ({"kind": "dense"}, "expected density 1 for .* which travel dense in 'text', got 0.001"),
        ({"names": ["0.weight"]}, r"expected layers of this model only .* also \['0.weight'\]"),
        ({"names": ["1.weight"] * 2}, r"each layer once .* more than once \['1.weight'\]"),
        ({"names": ["1.weight", "1.bias"]}, r"more than once \['1.bias'\]"),
        ({"names": ["1.bias"]}, r"every layer of this model .* none for \['1.weight'\]"),
    ],
)
def test_wrong_group_is_refused(change: dict[str, Any], complaint: str) -> None:
    value = json.loads(plan_to_json(PLAN))
    value["groups"][1] |= change
    with pytest.raises(ValueError, match=complaint):
        plan_from_json(json.dumps(value), NAMES)


@given(st.integers(0, 500), st.binary(max_size=4))
def test_damaged_text_is_another_plan_or_a_value_error(place: int, noise: bytes) -> None:
    text = plan_to_json(PLAN).encode()
    damaged = text[:place] + noise + text[place + len(noise) :]
    try:
        plan = plan_from_json(damaged, NAMES)
    except ValueError:
        return
    assert sorted(name for group in plan.groups for name in group.names) == sorted(NAMES)
