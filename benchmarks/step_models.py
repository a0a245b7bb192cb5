"""The models of `step.py`: a perceptron, a residual network, a recurrent network; random data.

Batches are chosen so that a step computes for a tenth to a fifth of a second on one core: the
perceptron's forward takes about 60 ms and its backward about 115 ms.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.append(str(Path(__file__).parents[1]))

from examples.dense_models import ResNet20  # its place is known only now

MODELS: Final = ("mlp", "resnet20", "lstm")
BATCHES: Final = MappingProxyType({"mlp": 240, "resnet20": 128, "lstm": 20})

_MLP_WIDTHS: Final = (1024, 2048, 2048, 1024, 1024, 10)
_PIXELS: Final = (3, 32, 32)
_NUM_CLASSES: Final = 10
_NUM_WORDS, _WORD_WIDTH, _NUM_STEPS = 10_000, 200, 20


class WordLSTM(nn.Module):
    """Two recurrent layers over words, the small model of Zaremba et al. (2014).

    The layers are modules of their own, so that each has its time of its own in backward.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_NUM_WORDS, _WORD_WIDTH)
        self.lower = nn.LSTM(_WORD_WIDTH, _WORD_WIDTH, batch_first=True)
        self.upper = nn.LSTM(_WORD_WIDTH, _WORD_WIDTH, batch_first=True)
        self.head = nn.Linear(_WORD_WIDTH, _NUM_WORDS)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores of each next word. [N, T], int64, to [N, num_words, T]."""
        hidden, _ = self.lower(self.embedding(x))  # [N, T, word_width]
        hidden, _ = self.upper(hidden)
        scores: Tensor = self.head(hidden)
        return scores.transpose(1, 2)


def make_model(name: str) -> nn.Module:
    """Make a model with fresh weights from torch's global generator.

    Args:
        name: One of `MODELS`: mlp has 9.45 M parameters, resnet20 0.27 M, lstm 4.65 M.

    Raises:
        ValueError: If there is no model of this name.
    """
    if name == "mlp":
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(_MLP_WIDTHS):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers[:-1])
    if name == "resnet20":
        return ResNet20(_PIXELS, _NUM_CLASSES, width=16)
    if name == "lstm":
        return WordLSTM()
    message = f"make_model: expected one of {MODELS} for 'name', got {name!r}. Choose one of them."
    raise ValueError(message)


def make_loss(name: str, model: nn.Module, seed: int) -> Callable[[], Tensor]:
    """Return a function that computes the loss on one random batch.

    Args:
        name: Of the model.
        model: What `make_model` returned for it.
        seed: Of the batch; ranks have different ones.
    """
    generator = torch.Generator().manual_seed(seed)
    num_examples = BATCHES[name]
    if name == "lstm":
        words = torch.randint(_NUM_WORDS, (num_examples, _NUM_STEPS + 1), generator=generator)
        x, y = words[:, :-1], words[:, 1:]
    else:
        shape = (_MLP_WIDTHS[0],) if name == "mlp" else _PIXELS
        x = torch.randn(num_examples, *shape, generator=generator)
        y = torch.randint(_NUM_CLASSES, (num_examples,), generator=generator)
    return lambda: functional.cross_entropy(model(x), y)
