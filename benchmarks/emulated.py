"""Emulated compute: a model whose layers take the time that they take alone, and no core.

Ranks that share a machine's cores slow each other down, which hosts of their own would not. Here
each layer sleeps for as long as it computed when it was measured alone, and hands out gradients of
random values through autograd. So hooks run in the usual order at the usual times, and what they
do (selection, coding, exchange, decoding) is real.

A layer is what has one module's parameters. Sleeps end a tenth of a
millisecond late, in every way of exchange alike.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from horovod_sylvie.gradient.measured_model import measure_layers


@dataclass(frozen=True)
class LayerTime:
    """One layer.

    Attributes:
        names: Of its parameters, in the order in which their gradients come.
        backward_s: Seconds from the gradients of the layer above to its own.
    """

    names: tuple[str, ...]
    backward_s: float


@dataclass(frozen=True)
class ComputeTimes:
    """How long a model computes.

    Attributes:
        forward_s: Seconds of forward, loss included.
        layers: In the order of backward.
    """

    forward_s: float
    layers: tuple[LayerTime, ...]

    @property
    def backward_s(self) -> float:
        """Seconds of backward."""
        return sum(layer.backward_s for layer in self.layers)

    def to_json(self) -> str:
        """Return it as text, for the other ranks."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ComputeTimes:
        """Return what `to_json` was called on."""
        fields = json.loads(text)
        layers = (LayerTime(tuple(each["names"]), each["backward_s"]) for each in fields["layers"])
        return cls(fields["forward_s"], tuple(layers))


def measure_times(
    model: nn.Module, loss_of: Callable[[], Tensor], *, steps: int = 7
) -> ComputeTimes:
    """Measure how long a model computes, with the threads that torch has now.

    Args:
        model: All of whose parameters that require gradients the loss depends on.
        loss_of: Computes a loss on a batch.
        steps: How often, after two more to warm up; medians are kept.
    """
    profiles, forward_s = measure_layers(model, loss_of, steps=steps)
    layers = []
    for _, group in itertools.groupby(profiles, lambda each: each.name.rpartition(".")[0]):
        members = list(group)
        names = tuple(each.name for each in members)
        layers.append(LayerTime(names, sum(each.backward_s for each in members)))
    return ComputeTimes(forward_s, tuple(layers))


class RandomValues:
    """A store of normal values, from which gradients are copied at another place every time.

    Making values takes longer than many a layer's backward; copying them does not.

    Args:
        num_elements: Of the largest gradient, at least.
        seed: Of the values and places; ranks have different ones.
    """

    _NUM_PLACES = 4096
    _ALIGNMENT = 16  # float32 of a cache line

    def __init__(self, num_elements: int, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        num_stored = num_elements + self._NUM_PLACES * self._ALIGNMENT
        self._stored = 1e-3 * torch.randn(num_stored, generator=self._generator)

    def gradient_of(self, parameter: Tensor) -> Tensor:
        """Return new values in memory of their own, of the parameter's shape, dtype and layout."""
        place = int(torch.randint(self._NUM_PLACES, (), generator=self._generator))
        first = place * self._ALIGNMENT
        values = self._stored[first : first + parameter.numel()]
        return torch.empty_like(parameter, requires_grad=False).copy_(values.view(parameter.shape))


class EmulatedModel(nn.Module):
    """Takes a model's time, and has its parameters.

    Args:
        model: Never called; its parameters get the gradients.
        times: Of the model.
        values: What gradients are made of.

    Raises:
        ValueError: If the times are of other parameters.
    """

    def __init__(self, model: nn.Module, times: ComputeTimes, values: RandomValues) -> None:
        super().__init__()
        self.model = model
        self._times = times
        self._values = values
        tensors = {name: each for name, each in model.named_parameters() if each.requires_grad}
        measured = [name for layer in times.layers for name in layer.names]
        if sorted(measured) != sorted(tensors):
            others = ", ".join(sorted(set(measured) ^ set(tensors))) or "a name twice"
            raise ValueError(
                "EmulatedModel: expected each of the model's parameters that require gradients "
                f"once in 'times', but these differ: {others}. Measure this model."
            )
        self._tensors = [[tensors[name] for name in layer.names] for layer in times.layers]

    def forward(self) -> Tensor:
        """Sleep for the time of forward; return a loss, 0, whose backward hands out gradients."""
        # Nothing is in flight in forward, so its layers need no times of their own
        _sleep_until(time.perf_counter() + self._times.forward_s)
        signal = torch.zeros(())
        for layer, tensors in zip(
            reversed(self._times.layers), reversed(self._tensors), strict=True
        ):
            signal = _EmulatedLayer.apply(  # type: ignore[no-untyped-call]
                signal, layer.backward_s, self._values, *tensors
            )
        return signal


class _EmulatedLayer(torch.autograd.Function):
    """Passes a scalar on, so that layers' backwards run one after the other."""

    @staticmethod
    def forward(
        ctx: Any, signal: Tensor, backward_s: float, values: RandomValues, *tensors: Tensor
    ) -> Tensor:
        ctx.backward_s, ctx.values, ctx.tensors = backward_s, values, tensors
        return signal.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        # The time that the copies take belongs to the layer's
        end_s = time.perf_counter() + ctx.backward_s
        gradients = [ctx.values.gradient_of(tensor) for tensor in ctx.tensors]
        _sleep_until(end_s)
        return (grad, None, None, *gradients)


def _sleep_until(end_s: float) -> None:
    remaining_s = end_s - time.perf_counter()
    if remaining_s > 0:
        time.sleep(remaining_s)
