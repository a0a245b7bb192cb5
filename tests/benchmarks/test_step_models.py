"""Models of the step benchmark have the sizes that its tables name."""

from __future__ import annotations

import pytest
import torch
from step_models import MODELS, make_loss, make_model


@pytest.mark.parametrize(
    ("name", "num_parameters", "num_tensors"),
    [("mlp", 9_453_578, 10), ("resnet20", 272_474, 65), ("lstm", 4_653_200, 11)],
)
def test_model_of_each_name_has_its_parameters(
    name: str, num_parameters: int, num_tensors: int
) -> None:
    tensors = list(make_model(name).parameters())
    assert sum(each.numel() for each in tensors) == num_parameters
    assert len(tensors) == num_tensors


@pytest.mark.parametrize("name", MODELS)
def test_loss_of_a_batch_reaches_every_parameter(name: str) -> None:
    model = make_model(name)
    loss = make_loss(name, model, seed=0)()
    assert loss.shape == () and bool(loss.isfinite())
    loss.backward()
    assert all(each.grad is not None for each in model.parameters())


def test_loss_depends_on_the_seed_of_the_batch_only() -> None:
    model = make_model("mlp")
    with torch.no_grad():
        first, same, other = (make_loss("mlp", model, seed)().item() for seed in (0, 0, 1))
    assert first == same != other


def test_unknown_model_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of .*'mlp'.* for 'name', got 'cnn'. Choose"):
        make_model("cnn")
