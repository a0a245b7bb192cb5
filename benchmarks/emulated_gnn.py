"""Emulated compute of a graph network: it sleeps, and its halo exchanges are real.

As `emulated.py` does for other models, and for the same reason: ranks that share a machine's cores
slow each other down, which hosts of their own would not. Each segment of an epoch (`traced_gnn.py`)
sleeps for as long as it took when its rank computed alone.

Rows change little from epoch to epoch, as they do in training: rules that look at how much rows
change shall not find noise.

Shapes: I inner rows, H halo rows, W columns of an exchange.
"""

from __future__ import annotations

import math
import time
import zlib
from typing import Any, Final

import torch
from emulated import RandomValues
from torch import Tensor, nn
from traced_gnn import EpochTimes, ExchangeTimes, Segment

import horovod_sylvie as hvs

DRIFT: Final = 0.05  # relative change of rows from epoch to epoch


class SlowValues(RandomValues):
    """A store of normal values, from which tensors are made that change little from call to call.

    Args:
        num_elements: Of the largest tensor, at least.
        seed: Of the values and places; ranks have different ones.
    """

    def of_shape(self, shape: tuple[int, ...], name: str) -> Tensor:
        """Return values in memory of their own; those of one name and shape change by `DRIFT`."""
        own = self._view(zlib.crc32(name.encode()) % self._NUM_PLACES, shape)
        place = int(torch.randint(self._NUM_PLACES, (), generator=self._generator))
        # Two independent deviations lie between a call and the next
        return torch.add(own, self._view(place, shape), alpha=DRIFT / math.sqrt(2))

    def _view(self, place: int, shape: tuple[int, ...]) -> Tensor:
        first = place * self._ALIGNMENT
        return self._stored[first : first + math.prod(shape)].view(shape)


class EmulatedGNN:
    """Takes the time of a graph network, has its parameters, and makes its exchanges.

    Args:
        model: Never called; its parameters get the gradients.
        times: Of the model on this rank.
        halo: Makes the exchanges.
        values: What rows and gradients are made of.
        prefix: Stands in front of the names of layers and parameters that are in `times`.

    Raises:
        ValueError: If the times are of other parameters, or the exchange's rows are not those that
            would travel.
    """

    def __init__(
        self,
        model: nn.Module,
        times: EpochTimes,
        halo: hvs.HaloExchange,
        values: SlowValues,
        prefix: str,
    ) -> None:
        parameters = dict(model.named_parameters())
        groups = [times.first_names, *(each.names for each in times.exchanges)]
        measured = [prefix + name for group in groups for name in group]
        if sorted(measured) != sorted(parameters):
            others = ", ".join(sorted(set(measured) ^ set(parameters))) or "a name twice"
            raise ValueError(
                "EmulatedGNN: expected each of the model's parameters once in 'times', but these "
                f"differ: {others}. Measure this model."
            )
        for each in times.exchanges:
            self._prefer_products(each, halo, prefix)
        self._times = times
        self._halo = halo
        self._values = values
        self._prefix = prefix
        self._tensors = [[parameters[prefix + name] for name in group] for group in groups]
        self._anchor = torch.zeros((), requires_grad=True)  # rows need gradients, come what may

    def __call__(self) -> Tensor:
        """Run forward; return a loss, 0, whose backward hands out gradients."""
        exchanges = self._times.exchanges
        # What a segment hands on: the rows of the next exchange, and the last one the loss
        shapes = [*((self._halo.plan.num_inner, each.width) for each in exchanges), ()]
        state = self._run("first", self._times.first, shapes[0], self._anchor, *self._tensors[0])
        for each, shape, tensors in zip(exchanges, shapes[1:], self._tensors[1:], strict=True):
            layer = self._prefix + each.layer
            rows = self._halo.start(state, layer=layer, training=True)
            if rows.is_ready:
                inner, segment = rows.x, each.at_once
            else:
                inner, segment = self._run("meanwhile", each.meanwhile, (), rows.x), each.after
            state = self._run(layer, segment, shape, inner, rows.finish(), *tensors)
        return state

    @staticmethod
    def _prefer_products(exchange: ExchangeTimes, halo: hvs.HaloExchange, prefix: str) -> None:
        """Let the exchange know of products, as converting a model does."""
        if exchange.num_inputs is None:
            return
        formats = halo.parts.formats
        if not (halo.smaller_side and formats.prefer_products(exchange.num_inputs, exchange.width)):
            raise ValueError(
                f"EmulatedGNN: expected a 'halo' that sends products of '{exchange.layer}' "
                f"({exchange.num_inputs} to {exchange.width} columns), as in 'times', got one with "
                f"{halo.codec} that does not. Measure with smaller_side=False."
            )
        formats.products[prefix + exchange.layer] = exchange.num_inputs

    def _run(self, name: str, segment: Segment, shape: tuple[int, ...], *inputs: Tensor) -> Tensor:
        output: Tensor = _EmulatedSegment.apply(  # type: ignore[no-untyped-call]
            name, segment, shape, self._values, *inputs
        )
        return output


class _EmulatedSegment(torch.autograd.Function):
    """Sleeps, and hands on values of a shape; backward, those of the shapes of its inputs."""

    @staticmethod
    def forward(
        ctx: Any,
        name: str,
        segment: Segment,
        shape: tuple[int, ...],
        values: SlowValues,
        *inputs: Tensor,
    ) -> Tensor:
        # The time that making values takes belongs to the segment's
        end_s = time.perf_counter() + segment.forward_s
        ctx.name, ctx.backward_s, ctx.values = name, segment.backward_s, values
        ctx.shapes = [each.shape for each in inputs]
        output = values.of_shape(shape, name) if shape else torch.zeros(())
        _sleep_until(end_s)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        del gradients
        end_s = time.perf_counter() + ctx.backward_s
        made = [
            ctx.values.of_shape(shape, f"{ctx.name} {number}")
            for number, shape in enumerate(ctx.shapes)
        ]
        _sleep_until(end_s)
        return (None, None, None, None, *made)


def _sleep_until(end_s: float) -> None:
    time.sleep(max(0.0, end_s - time.perf_counter()))
