"""The numbers of parameter groups, read on one rank and written on another."""

from __future__ import annotations

import pytest
import torch

from horovod_sylvie.gradient.hyperparameters import read_numbers, write_numbers


def make(scale: float, name: str) -> torch.optim.Optimizer:
    parameters = [{"params": [torch.ones(2)]}, {"params": [torch.ones(3)], "lr": 0.5 * scale}]
    if name == "adam":
        return torch.optim.Adam(parameters, lr=scale, betas=(0.1 * scale, 0.2), amsgrad=scale > 1)
    if name == "tensor":
        return torch.optim.Adam(parameters, lr=torch.tensor(scale))
    return torch.optim.SGD(parameters, lr=scale, momentum=0.1 * scale, nesterov=True)


@pytest.mark.parametrize("name", ["sgd", "adam", "tensor"])
def test_numbers_written_elsewhere_are_those_read(name: str) -> None:
    source, target = make(2.0, name), make(1.0, name)
    tensors = [group["params"] for group in target.param_groups]
    write_numbers(target.param_groups, read_numbers(source.param_groups))
    assert read_numbers(target.param_groups) == read_numbers(source.param_groups)
    for got, expected in zip(target.param_groups, source.param_groups, strict=True):
        for key in expected.keys() - {"params"}:
            assert got[key] == expected[key]
            assert type(got[key]) is type(expected[key])
    assert all(
        group["params"] is own for group, own in zip(target.param_groups, tensors, strict=True)
    )


def test_learning_rate_in_a_tensor_stays_that_tensor() -> None:
    source, target = make(2.0, "tensor"), make(1.0, "tensor")
    rate = target.param_groups[0]["lr"]
    write_numbers(target.param_groups, read_numbers(source.param_groups))
    assert target.param_groups[0]["lr"] is rate
    assert rate == 2.0


def test_values_of_other_kinds_are_left_alone() -> None:
    groups = [{"params": [torch.ones(2)], "lr": 1.0, "foreach": None, "name": "x", "norm": ("a",)}]
    assert read_numbers(groups) == [1.0]
    write_numbers(groups, [3.0])
    assert groups[0]["lr"] == 3.0
    assert groups[0]["foreach"] is None
    assert groups[0]["norm"] == ("a",)
