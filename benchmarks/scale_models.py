"""Published models and graphs, by their published architectures and counts.

ResNet-50 (He et al. 2016) and VGG-16 (Simonyan & Zisserman 2015) for images of 224 x 224, and
BERT-base (Devlin et al. 2019) for sequences of 128 tokens; Reddit (Hamilton et al. 2017),
ogbn-products and ogbn-papers100M (Hu et al. 2020).

MACs are multiply-adds of one example's forward; backward takes twice as many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

_BOTTLENECKS: Final = ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7))
_VGG: Final = ((64, 2, 224), (128, 2, 112), (256, 3, 56), (512, 3, 28), (512, 3, 14))
_NUM_CLASSES: Final = 1000
_WORDS, _POSITIONS, _HIDDEN, _INNER, _BERT_LAYERS, _TOKENS = 30_522, 512, 768, 3072, 12, 128


@dataclass(frozen=True)
class Parameter:
    """One parameter, in the order of forward.

    Attributes:
        name: Its name.
        num_elements: D.
        macs: Of the forward of one example.
        is_vector: A bias or a scale, which is never sparsified.
    """

    name: str
    num_elements: int
    macs: int = 0
    is_vector: bool = False


@dataclass(frozen=True)
class ScaleModel:
    """A model, and how it is trained.

    Attributes:
        label: For people.
        batch: Examples of a rank and step.
        parameters: In the order of forward.
    """

    label: str
    batch: int
    parameters: tuple[Parameter, ...]

    @property
    def num_elements(self) -> int:
        """Of all parameters."""
        return sum(each.num_elements for each in self.parameters)

    @property
    def macs(self) -> int:
        """Of the forward of one example."""
        return sum(each.macs for each in self.parameters)


@dataclass(frozen=True)
class ScaleGraph:
    """A graph, and the GraphSAGE that is trained on it.

    Attributes:
        label: For people.
        num_nodes: Nodes.
        num_messages: Messages of one layer, each undirected edge counted twice.
        num_features: Of a node.
        hidden: Width of the layers between.
        num_classes: Of the labels.
        num_layers: Layers.
    """

    label: str
    num_nodes: int
    num_messages: int
    num_features: int
    hidden: int
    num_classes: int
    num_layers: int

    @property
    def widths(self) -> tuple[int, ...]:
        """What each layer reads and the last one writes."""
        between = (self.hidden,) * (self.num_layers - 1)
        return (self.num_features, *between, self.num_classes)


def _convolution(
    name: str, inputs: int, outputs: int, kernel: int, size: int, *, biased: bool = False
) -> Iterator[Parameter]:
    """Yield a convolution to `size` x `size`; with batch normalisation where it has no bias."""
    weights = inputs * outputs * kernel**2
    yield Parameter(f"{name}.weight", weights, weights * size**2)
    if biased:
        yield Parameter(f"{name}.bias", outputs, is_vector=True)
    else:
        yield Parameter(f"{name}.scale", outputs, is_vector=True)
        yield Parameter(f"{name}.shift", outputs, is_vector=True)


def _linear(name: str, inputs: int, outputs: int, places: int = 1) -> Iterator[Parameter]:
    yield Parameter(f"{name}.weight", inputs * outputs, inputs * outputs * places)
    yield Parameter(f"{name}.bias", outputs, is_vector=True)


def _norm(name: str) -> Iterator[Parameter]:
    yield Parameter(f"{name}.scale", _HIDDEN, is_vector=True)
    yield Parameter(f"{name}.shift", _HIDDEN, is_vector=True)


def _resnet50() -> Iterator[Parameter]:
    yield from _convolution("stem", 3, 64, 7, 112)
    inputs = 64
    for width, num_blocks, size in _BOTTLENECKS:
        for block in range(num_blocks):
            name = f"{width}.{block}"
            # The stride is in the middle convolution: the first one sees the larger image
            before = 2 * size if block == 0 and width > 64 else size
            yield from _convolution(f"{name}.1", inputs, width, 1, before)
            yield from _convolution(f"{name}.2", width, width, 3, size)
            yield from _convolution(f"{name}.3", width, 4 * width, 1, size)
            if block == 0:
                yield from _convolution(f"{name}.skip", inputs, 4 * width, 1, size)
            inputs = 4 * width
    yield from _linear("head", inputs, _NUM_CLASSES)


def _vgg16() -> Iterator[Parameter]:
    inputs = 3
    for stage, (width, num_convolutions, size) in enumerate(_VGG):
        for number in range(num_convolutions):
            yield from _convolution(f"{stage}.{number}", inputs, width, 3, size, biased=True)
            inputs = width
    for name, before, after in (("1", 7 * 7 * 512, 4096), ("2", 4096, 4096)):
        yield from _linear(f"head.{name}", before, after)
    yield from _linear("head.3", 4096, _NUM_CLASSES)


def _bert_base() -> Iterator[Parameter]:
    for name, rows in (("words", _WORDS), ("positions", _POSITIONS), ("types", 2)):
        yield Parameter(f"embedding.{name}", rows * _HIDDEN)
    yield from _norm("embedding.norm")
    for layer in range(_BERT_LAYERS):
        for name in ("query", "key", "value", "output"):
            yield from _linear(f"{layer}.{name}", _HIDDEN, _HIDDEN, _TOKENS)
        yield from _norm(f"{layer}.norm.1")
        yield from _linear(f"{layer}.inner", _HIDDEN, _INNER, _TOKENS)
        yield from _linear(f"{layer}.outer", _INNER, _HIDDEN, _TOKENS)
        yield from _norm(f"{layer}.norm.2")
    yield from _linear("pooler", _HIDDEN, _HIDDEN)


MODELS: Final[Mapping[str, ScaleModel]] = MappingProxyType(
    {
        "resnet50": ScaleModel("ResNet-50", 64, tuple(_resnet50())),
        "vgg16": ScaleModel("VGG-16", 64, tuple(_vgg16())),
        "bert": ScaleModel("BERT-base", 32, tuple(_bert_base())),
    }
)

GRAPHS: Final[Mapping[str, ScaleGraph]] = MappingProxyType(
    {
        "reddit": ScaleGraph("Reddit", 232_965, 114_615_892, 602, 256, 41, 4),
        "products": ScaleGraph("ogbn-products", 2_449_029, 2 * 61_859_140, 100, 128, 47, 3),
        "papers": ScaleGraph("ogbn-papers100M", 111_059_956, 2 * 1_615_685_872, 128, 128, 172, 3),
    }
)
