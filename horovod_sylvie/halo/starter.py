"""Starts the exchange of one call of a layer: which way its rows go.

    kept         an input that needs no gradient, and was fetched before: nothing is sent
    features     such an input, for the first time: fetched in full precision
    forward      rows in training, by the epoch's format and staleness
    evaluation   rows in evaluation, or without gradients: fresh, in full precision

Shapes: I inner rows, H halo rows, B boundary rows, F features.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .formats import FULL_PRECISION
from .halo_rows import HaloRows, start_differentiable
from .halo_state import HaloParts
from .pipeline import Incoming
from .plan import Route
from .staleness import Staleness
from .traffic import Direction


class Starter:
    """Starts exchanges; see `HaloExchange.start`.

    Args:
        parts: What they work with.
        staleness: When rows of the epoch before may be used.
        end_epoch: Ends an epoch that nobody has ended.
    """

    def __init__(
        self, parts: HaloParts, staleness: Staleness, end_epoch: Callable[[], None]
    ) -> None:
        self._parts = parts
        self._plan = parts.plan
        self._staleness = staleness
        self._end_epoch = end_epoch

    def start(self, x: Tensor, layer: str, *, training: bool) -> HaloRows:
        """Start the exchange of inner rows.

        Args:
            x: Inner rows, checked. [I, F]
            layer: Name of the layer.
            training: Whether this is a training step.
        """
        inputs = self._parts.inputs
        fetched = inputs.find(x, layer)
        if fetched is not None:
            return self._kept(x, fetched)
        if torch.is_grad_enabled() and x.requires_grad:
            return self._start_forward(x, layer) if training else self._start_evaluation(x, layer)
        if not (training and torch.is_grad_enabled()):
            return self._fetch(x, layer, "evaluation")
        inputs.check(x, layer)
        extended = self._fetch(x, layer, "features").extended()
        inputs.keep(x, layer, extended)
        return self._kept(x, extended)

    def _start_forward(self, x: Tensor, layer: str) -> HaloRows:
        clock, pipeline = self._parts.clock, self._parts.pipeline
        recomputes = torch._C._current_graph_task_id() != -1
        if recomputes and self._staleness.keeps_rows:
            raise RuntimeError(
                f"start: '{layer}' was called in backward, as activation checkpointing does. What "
                "it computed with is not kept until then. Use Synchronous(), or no checkpointing."
            )
        if clock.is_over and not recomputes:
            self._end_epoch()
        slot = clock.slot(layer)

        def send_home(gradient: Tensor) -> Incoming:
            clock.go_backward()
            return pipeline.exchange(gradient, slot, "backward")

        return start_differentiable(
            x,
            send=lambda rows: pipeline.exchange(rows, slot, "forward"),
            send_home=send_home,
            add_home=self._add_home,
            num_halo=self._plan.num_halo,
        )

    def _start_evaluation(self, x: Tensor, layer: str) -> HaloRows:
        return start_differentiable(
            x,
            send=lambda rows: self._fresh(rows, self._plan.forward, layer, "evaluation"),
            send_home=lambda gradient: self._fresh(
                gradient, self._plan.backward, layer, "evaluation", suffix=".backward"
            ),
            add_home=self._add_home,
            num_halo=self._plan.num_halo,
        )

    def _fetch(self, x: Tensor, layer: str, direction: Direction) -> HaloRows:
        incoming = self._fresh(x.detach().contiguous(), self._plan.forward, layer, direction)
        return HaloRows(x.detach(), incoming.wait, is_ready=incoming.is_ready)

    def _kept(self, x: Tensor, extended: Tensor) -> HaloRows:
        return HaloRows(
            x, lambda: extended[self._plan.num_inner :], is_ready=True, extended=extended
        )

    def _fresh(
        self, rows: Tensor, route: Route, layer: str, direction: Direction, *, suffix: str = ""
    ) -> Incoming:
        format_ = self._parts.formats.by_codec(FULL_PRECISION, route, rows.shape[1], rows.dtype)
        return self._parts.pipeline.fresh(
            rows, route, format_, layer=layer, direction=direction, suffix=suffix
        )

    def _add_home(self, gradient: Tensor, boundary: Incoming) -> Tensor:
        # Rows arrive in rank order, so the order of summation, and its rounding, never changes.
        total = gradient.clone(memory_format=torch.contiguous_format)
        boundary.add_to(total, self._plan.home)
        return total
