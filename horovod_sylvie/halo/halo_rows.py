"""Halo rows of one call of a layer: started, then finished, and their gradients sent home.

Two autograd functions make one exchange. `_Start` sends the inner rows; `_Finish` gives the halo
rows. Backward, autograd runs what was made last first: `_Finish` sends the gradients of halo rows,
the nodes made between the two are next, and `_Start` waits for what the peers sent and adds it. So
whatever a layer computes between `start` and `finish` overlaps with the exchange, both ways.

Shapes: I inner rows, H halo rows, F features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .pipeline import Incoming


class HaloRows:
    """The rows of one call of a layer.

    Args:
        x: Inner rows to compute with. [I, F]
        finish: Gives the halo rows, once. [H, F]
        is_ready: Whether they are there.
        extended: Inner and halo rows, where they are kept as one. [I + H, F]
    """

    def __init__(
        self,
        x: Tensor,
        finish: Callable[[], Tensor],
        *,
        is_ready: bool,
        extended: Tensor | None = None,
    ) -> None:
        self.x = x
        self.is_ready = is_ready
        self._finish: Callable[[], Tensor] | None = finish
        self._extended = extended

    def finish(self) -> Tensor:
        """Return the halo rows; wait for them. Once. [H, F]."""
        assert self._finish is not None, "the halo rows of a call are finished once"
        finish, self._finish = self._finish, None
        return finish()

    def extended(self) -> Tensor:
        """Return inner rows, then halo rows. Instead of `finish`. [I + H, F]."""
        if self._extended is not None:
            return self._extended
        return torch.cat([self.x, self.finish()])


class _Link:
    """What the two halves of an exchange share.

    Attributes:
        send: Sends inner rows.
        send_home: Sends gradients of halo rows.
        add_home: Adds the gradients that arrived to those of the inner rows.
        incoming: The halo rows.
        returning: The gradients of boundary rows.
    """

    def __init__(
        self,
        send: Callable[[Tensor], Incoming],
        send_home: Callable[[Tensor], Incoming],
        add_home: Callable[[Tensor, Incoming], Tensor],
        num_halo: int,
    ) -> None:
        self.send, self.send_home, self.add_home = send, send_home, add_home
        self.num_halo = num_halo
        self.incoming: Incoming | None = None
        self.returning: Incoming | None = None


def start_differentiable(
    x: Tensor,
    *,
    send: Callable[[Tensor], Incoming],
    send_home: Callable[[Tensor], Incoming],
    add_home: Callable[[Tensor, Incoming], Tensor],
    num_halo: int,
) -> HaloRows:
    """Start an exchange whose gradients travel home.

    Args:
        x: Inner rows. [I, F]
        send: Sends inner rows [I, F], and gives halo rows [H, F].
        send_home: Sends gradients of halo rows [H, F], and gives those of boundary rows [B, F].
        add_home: Of gradients of inner rows [I, F] and those of boundary rows that arrive [B, F]:
            their sum [I, F].
        num_halo: Number of halo rows, H.

    Returns:
        The rows of this call.
    """
    link = _Link(send, send_home, add_home, num_halo)
    inner, token = _Start.apply(x, link)  # type: ignore[no-untyped-call]
    assert link.incoming is not None, "forward has run"
    return HaloRows(
        inner,
        lambda: _Finish.apply(token, link),  # type: ignore[no-untyped-call]
        is_ready=link.incoming.is_ready,
    )


class _Start(torch.autograd.Function):
    """Inner rows, and a token that ties the halo rows to them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, link: _Link) -> tuple[Tensor, Tensor]:
        ctx.link = link
        link.incoming = link.send(x.detach().contiguous())
        return x.view_as(x), x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, token: Tensor) -> tuple[Tensor, None]:
        del token  # it only orders the two
        link = ctx.link
        returning = link.returning
        if returning is None:  # this rank's loss does not depend on halo rows; peers wait for it
            nothing = gradient.new_zeros((link.num_halo, gradient.shape[1]))
            returning = link.send_home(nothing)
        link.returning = None
        return link.add_home(gradient, returning), None


class _Finish(torch.autograd.Function):
    """Halo rows."""

    @staticmethod
    def forward(ctx: Any, token: Tensor, link: _Link) -> Tensor:
        del token
        ctx.link = link
        assert link.incoming is not None, "_Start has run"
        incoming, link.incoming = link.incoming, None
        return incoming.wait()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.link.returning = ctx.link.send_home(gradient.contiguous())
        return gradient.new_zeros(0), None
