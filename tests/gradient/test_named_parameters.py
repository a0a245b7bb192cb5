"""Names and groups of parameters as a user gives them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from horovod_sylvie.gradient.named_parameters import check_groups, check_named_parameters

A, B, C = (nn.Parameter(torch.ones(n)) for n in (1, 2, 3))
GROUPS = [{"params": [A, B]}, {"params": [C]}]


def test_parameters_without_names_are_numbered() -> None:
    named = check_named_parameters(GROUPS, None)
    assert [name for name, _ in named] == [
        "allreduce.noname.0.0",
        "allreduce.noname.0.1",
        "allreduce.noname.1.0",
    ]
    assert [id(tensor) for _, tensor in named] == [id(A), id(B), id(C)]


def test_names_keep_their_order_and_foreign_parameters_are_left_out() -> None:
    foreign = nn.Parameter(torch.ones(4))
    pairs = [("c", C), ("foreign", foreign), ("a", A), ("b", B)]
    assert [name for name, _ in check_named_parameters(GROUPS, iter(pairs))] == ["c", "a", "b"]


def test_tied_parameter_keeps_its_first_name() -> None:
    pairs = [("a", A), ("tied", A), ("b", B), ("c", C)]
    named = check_named_parameters(GROUPS, pairs)
    assert [name for name, _ in named] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ([A, B, C], "pairs of name and parameter for 'named_parameters', usually model"),
        ([("a", A), ("b", B), ("b", C)], "got twice: b. Put the modules into one, or add a prefix"),
        ([("a", A), ("b", B)], r"got none for 1 of 3, the first of shape \(3,\). Pass the named_"),
        ([], r"got none for 3 of 3, the first of shape \(1,\)"),
    ],
    ids=["no pairs", "twice", "missing", "none"],
)
def test_wrong_names_raise(pairs: list[tuple[str, Tensor]], text: str) -> None:
    with pytest.raises(ValueError, match=f"DistributedOptimizer: expected .*{text}"):
        check_named_parameters(GROUPS, pairs)


NAMED = [("a", A), ("b", B), ("c", C)]


def test_groups_of_parameters_become_groups_of_names() -> None:
    foreign = nn.Parameter(torch.ones(4))
    assert check_groups([[C, foreign], [A]], NAMED) == (("c",), ("a",))
    assert check_groups([iter([C, B])], NAMED) == (("c", "b"),)
    assert check_groups([], NAMED) == ()
    assert check_groups(3, NAMED) == 3
    assert check_groups(None, NAMED) is None


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        (-1, "expected a number of groups from 0, or a list of lists of parameters"),
        (True, "for 'groups', got True"),
        ("ab", "for 'groups', got 'ab'"),
        (1.5, "for 'groups', got 1.5"),
        ([A, B], "expected lists of parameters for 'groups'"),
        ([A, [B]], "expected lists of parameters for 'groups'"),
        ([3], "expected lists of parameters for 'groups'"),
        ([["a"]], "expected lists of parameters for 'groups'"),
        ([[A], [A, B]], "expected each parameter at most once in 'groups'"),
    ],
)
def test_wrong_groups_raise(groups: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check_groups(groups, NAMED)
