"""Rows of this epoch, or of the epoch before: what is sent, what is kept, what is awaited.

An exchange of a slot and direction sends this epoch's rows, always. It gives back either the rows
that the peers sent in this epoch, which must be awaited, or those of the epoch before, which were.
At most one transfer of a slot and direction is in flight.

Shapes: n rows received, F features.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..comm.protocol import Communicator
from ..ops.row_sums import RowSums, add_rows
from .epoch_clock import EpochClock
from .format import Format
from .plan import HaloPlan, Route
from .staleness import Staleness
from .traffic import Direction
from .transfer import DriftMeter, Sender, Transfer

logger = logging.getLogger(__name__)

FormatOf = Callable[[Tensor, str, Direction], Format]


@dataclass(frozen=True)
class Use:
    """What a slot and direction computed with in an epoch.

    Attributes:
        is_stale: Whether with the rows of the epoch before.
        drift: The drift by which that was decided; NaN where it was not measured.
    """

    is_stale: bool
    drift: float


@dataclass
class Kept:
    """Rows of an epoch, kept for the next.

    Attributes:
        epoch: When they were sent.
        rows: The rows, once `transfer` is finished. [n, F]
        transfer: Theirs, where it is in flight.
        drift: Their drift.
    """

    epoch: int
    rows: Tensor
    transfer: Transfer | None = None
    drift: float = math.nan

    def finish(self) -> None:
        """Wait for the rows, unless they are there."""
        if self.transfer is not None:
            transfer, self.transfer = self.transfer, None
            self.drift = transfer.finish(self.rows)


class Incoming:
    """Rows to compute with; they may be on their way.

    Args:
        rows: Where they are, or will be. [n, F]
        finish: Waits for them; None where they are there.
        add: Waits for them, and adds them to a matrix, where nobody else needs them.
    """

    def __init__(
        self,
        rows: Tensor,
        finish: Callable[[], object] | None = None,
        add: Callable[[RowSums, Tensor], None] | None = None,
    ) -> None:
        self._rows = rows
        self._finish = finish
        self._add = add

    @property
    def is_ready(self) -> bool:
        """Whether `wait` returns at once."""
        return self._finish is None

    def wait(self) -> Tensor:
        """Return the rows. [n, F]; see `Transfer.finish` for what is raised."""
        if self._finish is not None:
            finish, self._finish = self._finish, None
            finish()
        return self._rows

    def add_to(self, out: Tensor, sums: RowSums) -> None:
        """Add the rows to those of a matrix. Instead of `wait`, which raises the same.

        Args:
            out: Written. [N, F], contiguous
            sums: Which is added to which.
        """
        if self._finish is None or self._add is None:
            add_rows(self.wait(), sums, out=out)
        else:
            self._finish = None
            self._add(sums, out)


class Pipeline:
    """Every training exchange of one rank.

    Args:
        comm: The communicator.
        plan: Who sends which rows to whom.
        sender: Makes the transfers.
        staleness: When rows of the epoch before may be used.
        clock: Which epoch it is.
        format_of: Gives the format of an exchange: of its rows, slot and direction.

    Attributes:
        kept: What is kept for the next epoch, by slot and direction.
        drifts: Compares what is sent with what was sent an epoch ago.
        holds_gradients: Whether gradients of halo rows that need not be awaited are submitted by
            `release`, behind whatever the caller submits before.
    """

    def __init__(
        self,
        comm: Communicator,
        plan: HaloPlan,
        sender: Sender,
        staleness: Staleness,
        clock: EpochClock,
        format_of: FormatOf,
    ) -> None:
        self.kept: dict[tuple[str, Direction], Kept] = {}
        self.drifts = DriftMeter()
        self.holds_gradients = False
        self._comm = comm
        self._plan = plan
        self._sender = sender
        self._staleness = staleness
        self._clock = clock
        self._format_of = format_of
        self._held: list[Transfer] = []
        self._uses: dict[tuple[str, Direction], Use] = {}

    def exchange(self, rows: Tensor, slot: str, direction: Direction) -> Incoming:
        """Send rows, and give those to compute with.

        Args:
            rows: What the direction's route picks from. [N, F], contiguous
            slot: The layer's call.
            direction: "forward" or "backward".

        Returns:
            The rows of this epoch, or of the epoch before. [n, F]

        Raises:
            RuntimeError: Rows that were kept are of another epoch than the one before.
        """
        route = self._plan.route(direction)
        out = rows.new_empty((sum(route.recv_splits), rows.shape[1]))
        if self._comm.size == 1:
            return Incoming(out)
        key = (slot, direction)
        kept = self._take(key, out)
        drift = math.nan if kept is None else kept.drift
        is_stale = kept is not None and self._staleness.allows(self._clock.epoch, drift)
        norms = None
        if self._staleness.measures_drift:
            norms = self.drifts.measure(rows, route, f"{slot}.{direction}")
        transfer = self._sender.encode(
            rows,
            self._format_of(rows, slot, direction),
            route,
            layer=slot,
            direction=direction,
            is_stale=is_stale,
            norms=norms,
        )
        self._uses[key] = Use(is_stale, drift)
        if is_stale and direction == "backward" and self.holds_gradients:
            self._held.append(transfer)
        else:
            transfer.submit()
        if is_stale:
            assert kept is not None, "rows that are not there are not stale"
            self.kept[key] = Kept(self._clock.epoch, out, transfer)
            return Incoming(kept.rows)
        add = None if self._staleness.keeps_rows else transfer.add
        return Incoming(out, lambda: self._finish(transfer, out, key), add)

    def fresh(
        self,
        rows: Tensor,
        route: Route,
        format_: Format,
        *,
        layer: str,
        direction: Direction,
        suffix: str = "",
    ) -> Incoming:
        """Send rows outside of the epochs of training, and give this call's.

        Args:
            rows: What the route picks from. [N, F], contiguous
            route: Which rows go where.
            format_: How rows stand in the messages.
            layer: Name of the layer.
            direction: Under which the bytes are counted.
            suffix: Tells operations of one layer and direction apart.

        Returns:
            The peers' rows. [n, F]
        """
        out = rows.new_empty((sum(route.recv_splits), rows.shape[1]))
        if self._comm.size == 1:
            return Incoming(out)
        transfer = self._sender.encode(
            rows, format_, route, layer=layer, direction=direction, suffix=suffix
        )
        transfer.submit()
        return Incoming(out, lambda: transfer.finish(out), transfer.add)

    def release(self) -> None:
        """Submit the gradients that are held; all ranks do at the same point."""
        held, self._held = self._held, []
        for transfer in held:
            transfer.submit()

    def end_epoch(self) -> Mapping[tuple[str, Direction], Use]:
        """Let go of what was kept for the epoch that ends and was not used in it.

        Called before the clock moves on. A layer that is not called in an epoch begins anew.

        Returns:
            What the epoch computed with, by slot and direction, in order.
        """
        self.release()
        unused = [key for key, kept in self.kept.items() if kept.epoch < self._clock.epoch]
        for key in unused:
            logger.debug("%s was not called: its rows of the epoch before are dropped", key)
            self.kept.pop(key).finish()
        uses, self._uses = self._uses, {}
        return uses

    def drain(self) -> None:
        """Wait for whatever is in flight; the rows stay kept."""
        self.release()
        for kept in self.kept.values():
            kept.finish()

    def _finish(self, transfer: Transfer, out: Tensor, key: tuple[str, Direction]) -> None:
        drift = transfer.finish(out)
        if self._staleness.keeps_rows:
            # A copy: the layer owns what it was given, and may write to it
            self.kept[key] = Kept(self._clock.epoch, out.clone(), drift=drift)

    def _take(self, key: tuple[str, Direction], like: Tensor) -> Kept | None:
        """Return the rows of the epoch before, where there are some."""
        kept = self.kept.pop(key, None)
        epoch = self._clock.epoch
        if kept is None:
            if epoch == 0 and self._staleness.starts_from_zeros:
                return Kept(-1, torch.zeros_like(like))
            return None
        kept.finish()
        if kept.epoch != epoch - 1:
            slot, direction = key
            again = "gradients came twice in one epoch" if kept.epoch == epoch else "is too old"
            raise RuntimeError(
                f"'{slot}' {direction}: expected halo rows of epoch {epoch - 1} in epoch {epoch}, "
                f"got those of epoch {kept.epoch} ({again}). Rows may be one epoch old, no more. "
                "Call backward once per forward pass and end each epoch, or use Synchronous()."
            )
        # Another width, after a layer was changed: nothing to go on with
        return kept if kept.rows.shape == like.shape and kept.rows.dtype == like.dtype else None
