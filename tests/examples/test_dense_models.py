"""Models of the dense example have the shapes that they are named after."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from examples.dense_models import make_model


def num_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", ["mlp", "resnet20"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (2, 9, 7)])
def test_model_of_images_on_any_size_scores_each_class(name: str, shape: tuple[int, ...]) -> None:
    model = make_model(name, shape, num_classes=5, width=4)
    scores = model(torch.randn(3, *shape))
    assert scores.shape == (3, 5)
    scores.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_resnet20_has_twenty_layers_and_their_parameters() -> None:
    model = make_model("resnet20", (3, 32, 32), num_classes=10, width=16)
    layers = [
        module
        for name, module in model.named_modules()
        if isinstance(module, (nn.Conv2d, nn.Linear)) and "shortcut" not in name
    ]
    assert len(layers) == 20
    shortcuts = 16 * 32 + 32 * 64 + 2 * (32 + 64)
    assert num_parameters(model) == 269_722 + shortcuts


def test_mlp_has_two_hidden_layers() -> None:
    model = make_model("mlp", (1, 8, 8), num_classes=10, width=512)
    assert num_parameters(model) == 64 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10


def test_lstm_scores_do_not_see_later_characters() -> None:
    model = make_model("lstm", (12,), num_classes=9, width=16)
    chunks = torch.randint(9, (2, 12))
    changed = chunks.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % 9
    before, after = model(chunks), model(changed)
    assert before.shape == (2, 12, 9)
    assert torch.equal(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


def test_make_model_of_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(ValueError, match="expected one of .*'resnet20'.* got 'vgg'"):
        make_model("vgg", (1, 8, 8), num_classes=10, width=16)
