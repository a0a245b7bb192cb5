"""How long a graph network computes on one rank, between its halo exchanges.

An epoch is a chain of *segments*:

    begin  A  start 1  B1  finish 1  C1  start 2  B2  finish 2  C2  end of the loss

B is what a layer computes while its halo rows are on their way, C the rest of it and what stands in
front of the next exchange. Backward runs the chain from its end: C2, gradients leave, B2, gradients
have come, C1, and so on. A layer that need not wait may compute in another way, so both are
measured.

Shapes: I inner rows, H halo rows, B boundary rows, W columns of an exchange.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

import horovod_sylvie as hvs
from horovod_sylvie.halo.halo_rows import HaloRows, start_differentiable
from horovod_sylvie.halo.pipeline import Incoming

_WARMUP_EPOCHS = 2


@dataclass(frozen=True)
class Segment:
    """What is computed between two exchanges.

    Attributes:
        forward_s: Seconds of it.
        backward_s: Seconds of its backward.
    """

    forward_s: float
    backward_s: float

    def __add__(self, other: Segment) -> Segment:
        """Return both as one."""
        return Segment(self.forward_s + other.forward_s, self.backward_s + other.backward_s)


@dataclass(frozen=True)
class ExchangeTimes:
    """One exchange, and the segments behind it.

    Attributes:
        layer: Name of its layer.
        width: Columns of its rows, W.
        num_inputs: Columns of the rows whose products these are; None where rows travel themselves.
        names: Of the parameters whose gradients come in those segments.
        meanwhile: While halo rows travel.
        after: With halo rows that were awaited.
        at_once: In place of both, with halo rows that need not be awaited.
    """

    layer: str
    width: int
    num_inputs: int | None
    names: tuple[str, ...]
    meanwhile: Segment
    after: Segment
    at_once: Segment


@dataclass(frozen=True)
class EpochTimes:
    """How long one rank computes.

    Attributes:
        first: Before the first exchange.
        first_names: Of the parameters whose gradients come there.
        exchanges: In the order of forward.
    """

    first: Segment
    first_names: tuple[str, ...]
    exchanges: tuple[ExchangeTimes, ...]

    @property
    def whole(self) -> Segment:
        """An epoch that waits for no halo rows."""
        return sum((each.at_once for each in self.exchanges), self.first)


class TracedHalo(hvs.HaloExchange):
    """Exchanges nothing, and notes when a layer asks for halo rows and for what it hands over.

    Attributes:
        is_ready: Whether layers find halo rows there at once.
        marks: When, in seconds, and what happened, in order.
        exchanges: Layer and width of each exchange of the epoch.
    """

    def __init__(
        self, part: hvs.Partition, comm: hvs.Communicator, *, is_plain: bool = False
    ) -> None:
        ours = not is_plain
        super().__init__(part, hvs.FullPrecision(), overlap=ours, smaller_side=ours, comm=comm)
        self.is_ready = False
        self.marks: list[tuple[float, str]] = []
        self.exchanges: list[tuple[str, int]] = []

    def mark(self, what: str) -> None:
        """Note that something happens now."""
        self.marks.append((time.perf_counter(), what))

    def start(self, x: Tensor, *, layer: str, training: bool) -> HaloRows:
        """See `HaloExchange.start`. Halo rows are zeros; but those of features are fetched."""
        if not x.requires_grad:
            return super().start(x, layer=layer, training=training)
        number = len(self.exchanges)
        self.exchanges.append((layer, x.shape[1]))
        halo_rows = x.new_zeros((self.plan.num_halo, x.shape[1]))
        boundary = x.new_zeros((len(self.plan.send_index), x.shape[1]))

        def send(rows: Tensor) -> Incoming:
            del rows
            self.mark(f"start {number}")
            if not self.is_ready:
                return Incoming(halo_rows, lambda: self.mark(f"finish {number}"))
            self.mark(f"finish {number}")
            return Incoming(halo_rows)

        def send_home(gradient: Tensor) -> Incoming:
            del gradient
            self.mark(f"leave {number}")
            return Incoming(boundary)

        def add_home(gradient: Tensor, boundary: Tensor) -> Tensor:
            del boundary  # adding it is part of the exchange
            self.mark(f"come {number}")
            return gradient

        return start_differentiable(
            x, send=send, send_home=send_home, add_home=add_home, num_halo=self.plan.num_halo
        )


def measure_epoch(
    model: nn.Module, loss_of: Callable[[], Tensor], halo: TracedHalo, *, epochs: int = 5
) -> EpochTimes:
    """Measure how long a rank computes, with the threads that torch has now.

    Args:
        model: Converted with `halo`. It holds the network under one name, which is left out of
            those of layers and parameters here. The loss depends on all parameters.
        loss_of: Computes the loss. It was called before, on all ranks, so that features are there.
        halo: Exchanges nothing.
        epochs: How often, after two more to warm up; medians are kept.

    Returns:
        The times.
    """
    traces = []
    for is_ready in (True, False):
        halo.is_ready = is_ready
        runs = [_trace(model, loss_of, halo) for _ in range(epochs + _WARMUP_EPOCHS)]
        traces.append(_medians(runs[_WARMUP_EPOCHS:], len(halo.exchanges)))
    ready, waiting = traces
    names = _names_by_exchange([what for _, what in halo.marks], len(halo.exchanges))
    exchanges = [
        ExchangeTimes(
            layer=layer.partition(".")[2],
            width=width,
            num_inputs=halo.parts.formats.products.get(layer),
            names=names[number],
            meanwhile=waiting[2 * number - 1],
            after=waiting[2 * number],
            at_once=ready[2 * number - 1] + ready[2 * number],
        )
        for number, (layer, width) in enumerate(halo.exchanges, 1)
    ]
    return EpochTimes(waiting[0], names[0], tuple(exchanges))


def _trace(
    model: nn.Module, loss_of: Callable[[], Tensor], halo: TracedHalo
) -> list[tuple[float, str]]:
    """Return what happened in one epoch, gradients of parameters included, by name."""
    hooks = [
        parameter.register_post_accumulate_grad_hook(
            lambda _, name=name: halo.mark(name.partition(".")[2])
        )
        for name, parameter in model.named_parameters()
    ]
    halo.marks = []
    halo.exchanges = []
    try:
        halo.mark("begin")
        loss = loss_of()
        halo.mark("turn")
        loss.backward()
        halo.mark("end")
    finally:
        for hook in hooks:
            hook.remove()
    model.zero_grad()
    return halo.marks


def _medians(runs: Sequence[Sequence[tuple[float, str]]], num_exchanges: int) -> list[Segment]:
    """Return the segments in the order of forward."""
    segments = [_segments(marks, num_exchanges) for marks in runs]
    return [
        Segment(
            statistics.median(each.forward_s for each in same),
            statistics.median(each.backward_s for each in same),
        )
        for same in zip(*segments, strict=True)
    ]


def _segments(marks: Sequence[tuple[float, str]], num_exchanges: int) -> list[Segment]:
    when_s = {what: now_s for now_s, what in marks}
    forward, backward = ["begin"], ["end"]
    for number in range(num_exchanges):
        forward += [f"start {number}", f"finish {number}"]
        backward += [f"come {number}", f"leave {number}"]  # from its end, as forward runs
    return [
        Segment(when_s[after] - when_s[before], when_s[later] - when_s[earlier])
        for (before, after), (later, earlier) in zip(
            itertools.pairwise([*forward, "turn"]),
            itertools.pairwise([*backward, "turn"]),
            strict=True,
        )
    ]


def _names_by_exchange(marks: Sequence[str], num_exchanges: int) -> list[tuple[str, ...]]:
    """Return the parameters before the first exchange, then those of each exchange."""
    found: list[list[str]] = [[] for _ in range(num_exchanges + 1)]
    here = num_exchanges
    for what in marks[marks.index("turn") + 1 : -1]:
        if what.startswith("come "):
            here = int(what.removeprefix("come "))
        elif not what.startswith("leave "):
            found[here].append(what)
    return [tuple(each) for each in found]
