"""Models of the full-graph example have the layers that they are named after."""

from __future__ import annotations

from argparse import Namespace

import pytest
import torch
from full_graph_models import LAYERS, make_model
from torch_geometric.nn import GCNConv, MessagePassing, SAGEConv

EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3]])


def options(**changed: object) -> Namespace:
    defaults = {"model": "sage", "layers": 3, "hidden": 8, "heads": 4, "norm": "none"}
    defaults |= {"dropout": 0.0, "jk_conv": "sage", "jk_mode": "cat"}
    return Namespace(**defaults | changed)


@pytest.mark.parametrize("model", [name for name, _ in LAYERS])
@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
def test_model_scores_every_class_with_as_many_convolutions(model: str, norm: str) -> None:
    made = make_model(options(model=model, norm=norm), num_features=5, num_classes=4)
    convolutions = [each for each in made.modules() if isinstance(each, MessagePassing)]
    assert len(convolutions) == 3
    scores = made(torch.randn(6, 5), EDGES, None)
    assert scores.shape == (6, 4)
    scores.sum().backward()
    assert all(each.grad is not None for each in made.parameters())


@pytest.mark.parametrize(("mode", "width"), [("cat", 3 * 8), ("max", 8)])
def test_jumping_knowledge_reads_every_layer(mode: str, width: int) -> None:
    made = make_model(options(model="jknet", jk_mode=mode), num_features=5, num_classes=4)
    assert made.scores.in_features == width
    joined: list[torch.Tensor] = []
    made.jump.register_forward_hook(lambda _, inputs, output: joined.extend([*inputs[0], output]))
    made(torch.randn(6, 5), EDGES, None)
    *layers, output = joined
    assert len(layers) == 3
    expected = torch.cat(layers, dim=1) if mode == "cat" else torch.stack(layers).amax(dim=0)
    torch.testing.assert_close(output, expected, rtol=0, atol=0)


@pytest.mark.parametrize(("kind", "convolution"), [("sage", SAGEConv), ("gcn", GCNConv)])
def test_jumping_knowledge_is_over_the_convolutions_asked_for(
    kind: str, convolution: type[MessagePassing]
) -> None:
    made = make_model(options(model="jknet", jk_conv=kind), num_features=5, num_classes=4)
    assert all(type(each) is convolution for each in made.convs)


@pytest.mark.parametrize("model", ["gcn", "jknet"])
def test_gcn_uses_the_weights_of_edges(model: str) -> None:
    made = make_model(options(model=model, jk_conv="gcn"), num_features=5, num_classes=4)
    x = torch.randn(6, 5)
    weights = torch.rand(EDGES.shape[1])
    assert not torch.allclose(made(x, EDGES, None), made(x, EDGES, weights))


@pytest.mark.parametrize("model", ["sage", "jknet"])
def test_dropout_is_behind_the_first_convolution(model: str) -> None:
    made = make_model(options(model=model, dropout=0.5), num_features=5, num_classes=4)
    seen: list[torch.Tensor] = []
    made.convs[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    x = torch.randn(6, 5)
    first, second = made(x, EDGES, None), made(x, EDGES, None)
    assert not torch.equal(first, second)
    assert all(each is x for each in seen)
