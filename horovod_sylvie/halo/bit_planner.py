"""Plans how many bits each boundary row gets, and tells the receivers.

A sender decides about its own rows: it knows their range, their owner knows their in-degree, and
what they weigh at their receivers was told once. The receivers learn the bits in one alltoall per
direction, and each plan has a version, which is in every header: two ranks that do not use the same
plan fail loudly.

Shapes: N rows, U distinct rows to send, F features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

from ..comm.protocol import Communicator, Handle
from ..partition.local_partition import Partition
from .bit_allocation import allocate_bits, least_bytes
from .bit_policy import BudgetBits, DegreeBits, bits_by_degree
from .bit_tables import BitTables, exchange_bits, receiver_weights
from .codec import Codec
from .loss_trend import LossTrend
from .mixed_format import MixedFormat
from .observed_rows import ObservedRows
from .packed_codec import Bits, OneBit
from .plan import HaloPlan
from .traffic import Direction

_TINY: Final = 1e-30  # no weight is divided by less
_DIRECTIONS: Final[tuple[Direction, ...]] = ("forward", "backward")


class BitPlanner:
    """The plan of one rank. Until the first plan, in the first epoch, rows get the codec's one bit.

    Args:
        comm: The communicator.
        partition: This rank's partition.
        plan: Who sends which rows to whom.
        codec: What one bit means, forward.
        options: By budget or by degree.
        name: Begins the names of operations.

    Attributes:
        version: Plans made so far.
        tables: The bits of each row, by slot and direction.
        trend: By which the base of `DegreeBits` is chosen.
    """

    def __init__(
        self,
        comm: Communicator,
        partition: Partition,
        plan: HaloPlan,
        codec: OneBit,
        options: BudgetBits | DegreeBits,
        *,
        name: str,
    ) -> None:
        self.version = 0
        self.tables: dict[tuple[str, Direction], BitTables] = {}
        self.trend = LossTrend(base=options.base) if isinstance(options, DegreeBits) else None
        self._comm = comm
        self._partition = partition
        self._plan = plan
        self._options = options
        self._name = name
        self._codecs: Mapping[Direction, Mapping[int, Codec]] = MappingProxyType(
            {
                "forward": {1: codec, 2: Bits(2), 4: Bits(4), 8: Bits(8)},
                "backward": {1: codec.for_gradients(), 2: Bits(2), 4: Bits(4), 8: Bits(8)},
            }
        )
        self._observed: dict[tuple[str, Direction], ObservedRows] = {}
        self._formats: dict[tuple[str, Direction, int, torch.dtype], MixedFormat] = {}
        self._weights: Tensor | None = None
        self._loss: Handle | float | None = None
        self._is_due = options.is_due(0)

    def format(self, rows: Tensor, slot: str, direction: Direction) -> MixedFormat | None:
        """Return the format of rows by the newest plan; None before the first.

        Args:
            rows: What is sent, or picked from. [N, F]
            slot: The layer's call.
            direction: "forward" or "backward".
        """
        key = (slot, direction)
        num_features = rows.shape[1]
        if isinstance(self._options, BudgetBits) and self._is_due:
            self._observed[key] = ObservedRows.of(rows, self._plan.route(direction))
        tables = self.tables.get(key)
        if tables is None:
            return None
        kind = (*key, num_features, rows.dtype)
        if kind not in self._formats:
            self._formats[kind] = MixedFormat(
                self._plan.route(direction),
                codecs=self._codecs[direction],
                sent=tables.sent,
                received=tables.received,
                version=tables.version,
                num_features=num_features,
                dtype=rows.dtype,
            )
        return self._formats[kind]

    def record_loss(self, loss: Tensor) -> None:
        """Add up the ranks' losses, where the plan depends on them. See `HaloExchange`."""
        if self.trend is None or not self._adapts:
            return
        self._take_loss()  # the epoch's last loss counts
        share = loss.detach().to("cpu", torch.float64).reshape(1)
        self._loss = self._comm.allreduce(share, name=f"sylvie.{self._name}.loss")

    def drain(self) -> None:
        """Wait for the loss that is in flight; the number stays for the end of the epoch."""
        self._loss = self._take_loss()

    def end_epoch(self, epoch: int, slots: Sequence[tuple[str, Direction]]) -> None:
        """Plan again where that is due; all ranks do in the same epoch.

        Args:
            epoch: Epochs that ended before this one.
            slots: What was exchanged in it, by slot and direction, in order.

        Raises:
            RuntimeError: The loss decides, and was not told.
            ValueError: The budget is too small; raised on every rank.
        """
        if isinstance(self._options, BudgetBits):
            if self._is_due:
                self._plan_by_budget(self._options)
        else:
            self._plan_by_degree(epoch, slots)
        self._is_due = self._options.is_due(epoch + 1)

    def load(
        self, version: int, tables: Mapping[tuple[str, Direction], BitTables], epoch: int
    ) -> None:
        """Go on with the plan of a checkpoint, or with none. A loss that was told is forgotten.

        Args:
            version: Plans made so far.
            tables: The bits of each row; none where they must be planned anew.
            epoch: The epoch that is next.
        """
        self._take_loss()
        self.version = version
        self.tables = dict(tables)
        self._is_due = not tables or self._options.is_due(epoch)
        self._formats.clear()
        self._observed.clear()

    @property
    def options_text(self) -> str:
        """The options in one line: `trend` goes on only under equal ones."""
        return str(self._options)

    @property
    def _adapts(self) -> bool:
        return isinstance(self._options, DegreeBits) and self._options.adapt

    def _take_loss(self) -> float | None:
        """Wait for the loss of all ranks, and forget it here; None where none was told."""
        loss, self._loss = self._loss, None
        return loss if loss is None or isinstance(loss, float) else float(loss.wait())

    def _plan_by_budget(self, options: BudgetBits) -> None:
        """Share the budget among ranks by what they send at least, then among rows by their gain.

        A rank's share follows its rows, not their importance: a rank that sent more than its part
        would be waited for by all others.
        """
        keys = list(self._observed)
        if not keys:
            return
        observed = list(self._observed.values())
        weight = torch.cat(
            [
                each.relative_weights(self._importance(direction))
                for each, (_, direction) in zip(observed, keys, strict=True)
            ]
        )
        row_features = torch.cat([each.row_features for each in observed])
        copies = torch.cat([each.copies for each in observed])
        least = least_bytes(row_features, copies)
        totals = torch.tensor([least], dtype=torch.float64)
        total = int(self._comm.allreduce(totals, name=f"sylvie.{self._name}.least_bytes").wait())
        if options.budget_bytes < total:
            raise ValueError(
                f"BudgetBits: expected at least {total} bytes per epoch, one bit for every element "
                f"of every rank's boundary rows, for 'budget_bytes', got {options.budget_bytes}."
            )
        share = options.budget_bytes * least // max(total, 1)
        bits = allocate_bits(weight, row_features, copies, budget_bytes=max(share, least))
        self._tell(keys, list(bits.split([len(each.copies) for each in observed])))
        self._observed.clear()

    def _plan_by_degree(self, epoch: int, slots: Sequence[tuple[str, Direction]]) -> None:
        """Rank rows by in-degree; the base may follow the loss."""
        assert isinstance(self._options, DegreeBits)
        assert self.trend is not None
        base = self.trend.base
        if self._adapts:
            loss = self._take_loss()
            if loss is None:
                raise RuntimeError(
                    "DegreeBits: expected the loss of this epoch, by which adapt=True chooses the "
                    "base. Call halo.record_loss(loss) after each forward pass, on every rank."
                )
            self.trend = self.trend.observe(loss, may_change=self._options.is_due(epoch))
        if base != self.trend.base or not set(slots) <= set(self.tables):
            # Also for layers that were not called in this epoch: the base is theirs too
            keys = list(dict.fromkeys([*self.tables, *slots]))
            degrees = self._partition.in_weight
            known = {
                "forward": degrees[self._plan.route("forward").unique_rows],
                "backward": degrees[self._plan.num_inner :],
            }
            columns = [bits_by_degree(known[direction], self.trend.base) for _, direction in keys]
            self._tell(keys, columns)

    def _tell(self, keys: Sequence[tuple[str, Direction]], columns: Sequence[Tensor]) -> None:
        """Tell the receivers, and use the plan from the next epoch on."""
        self.version += 1
        self._formats.clear()
        for direction in _DIRECTIONS:
            own = {
                key: column
                for key, column in zip(keys, columns, strict=True)
                if key[1] == direction
            }
            received = exchange_bits(
                self._comm,
                self._plan.route(direction),
                list(own.values()),
                name=f"sylvie.{self._name}.bits.{direction}",
            )
            for (key, sent), arrived in zip(own.items(), received, strict=True):
                self.tables[key] = BitTables(self.version, sent, arrived)

    def _importance(self, direction: Direction) -> Tensor:
        """Return the sum of squared weights with which receivers use each distinct row. [U]."""
        if direction == "backward":  # the owner adds the gradients that arrive
            return torch.ones(
                self._plan.backward.num_unique,
                dtype=torch.float64,
                device=self._plan.send_index.device,
            )
        if self._weights is None:
            partition = self._partition
            targets = partition.edge_index[1]
            weight = partition.edge_weight
            one = torch.ones_like(targets, dtype=torch.float64) if weight is None else weight
            mean = one / partition.in_weight[targets].double().abs().clamp(min=_TINY)
            self._weights = receiver_weights(
                self._comm, self._plan, partition.edge_index, mean.double()
            )
        return self._weights
