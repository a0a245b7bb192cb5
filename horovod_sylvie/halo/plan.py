"""Who sends which rows to whom: frozen, built once from a partition.

A halo plan holds two routes. Forward, boundary rows leave their owner and become halo rows
elsewhere; backward, the gradients of halo rows go home along the same edges of the plan. Each is
the other's adjoint: the backward route sends what the forward route received, and the owner adds
what arrives to the rows that it sent.

Shapes: P ranks, I inner rows, H halo rows, B boundary rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..ops.row_sums import RowSums
from ..partition.local_partition import Partition
from .traffic import Direction


@dataclass(frozen=True)
class Route:
    """Rows that leave this rank and rows that arrive, in one direction.

    Attributes:
        rank: This rank.
        unique_rows: The distinct rows to send, ascending; None where all rows are sent once, in
            order. [U], int64
        expand: For each row sent, its position in `unique_rows`. [sum(send_splits)], int64
        send_splits: Rows sent to each rank. P entries.
        recv_splits: Rows received from each rank. P entries.
    """

    rank: int
    unique_rows: Tensor | None
    expand: Tensor
    send_splits: tuple[int, ...]
    recv_splits: tuple[int, ...]

    @property
    def num_unique(self) -> int:
        """The number of distinct rows to send, U."""
        return len(self.expand) if self.unique_rows is None else len(self.unique_rows)

    @property
    def size(self) -> int:
        """The number of ranks, P."""
        return len(self.send_splits)


@dataclass(frozen=True)
class HaloPlan:
    """Both routes of a partition.

    Attributes:
        rank: This rank.
        size: The number of ranks, P.
        num_inner: Rows owned here, I.
        num_halo: Rows of others that are read here, H.
        send_index: Inner rows sent, by destination, in the receiver's halo order. [B], int64
        forward: Route of features, inner rows out and halo rows in.
        backward: Route of gradients, halo rows out and boundary rows in.
        home: Which of the gradients that arrive is added to which inner row.
        digest: Content hash of the whole partitioning, the same on every rank.
    """

    rank: int
    size: int
    num_inner: int
    num_halo: int
    send_index: Tensor
    forward: Route
    backward: Route
    home: RowSums
    digest: str

    def route(self, direction: Direction) -> Route:
        """Return the route of a direction: backward for gradients, forward for all else."""
        return self.backward if direction == "backward" else self.forward

    @staticmethod
    def from_partition(partition: Partition) -> HaloPlan:
        """Build the plan of a rank's partition.

        Args:
            partition: What `load_partition` returned; its consistency was checked there.

        Returns:
            The plan, on the partition's device.
        """
        send_index = partition.send_index
        unique_rows, expand = torch.unique(send_index, return_inverse=True)
        halo_order = torch.arange(partition.num_halo, device=send_index.device)
        return HaloPlan(
            rank=partition.rank,
            size=partition.num_parts,
            num_inner=partition.num_inner,
            num_halo=partition.num_halo,
            send_index=send_index,
            forward=Route(
                partition.rank, unique_rows, expand, partition.send_splits, partition.recv_splits
            ),
            backward=Route(
                partition.rank, None, halo_order, partition.recv_splits, partition.send_splits
            ),
            home=RowSums.of(send_index, partition.num_inner),
            digest=partition.digest,
        )


@dataclass(frozen=True)
class MessageLayout:
    """Where headers and rows stand in the rows that one alltoall moves.

    Every rank sends every other rank one message: `header_rows` header rows, then the data rows.
    A message without data rows still carries its header. See [Note: Message format] in
    `horovod_sylvie.halo.message`.

    Attributes:
        send_slots: For each row sent, its row in the table [U unique rows; header rows].
        source_slots: The same, but naming the row before `unique_rows` is applied, and row 0 for
            header rows, so that plain copies can gather straight from the features.
        send_header_slots: Positions of header rows among the rows sent. [Q, header_rows]
        recv_header_slots: Positions of header rows among the rows received. [Q, header_rows]
        recv_row_slots: Positions of data rows among the rows received, in halo order.
        send_splits: Rows sent to each rank, headers included.
        recv_splits: Rows received from each rank, headers included.
    """

    send_slots: Tensor
    source_slots: Tensor
    send_header_slots: Tensor
    recv_header_slots: Tensor
    recv_row_slots: Tensor
    send_splits: tuple[int, ...]
    recv_splits: tuple[int, ...]

    @staticmethod
    def of(route: Route, header_rows: int) -> MessageLayout:
        """Lay out the messages of a route.

        Args:
            route: The rows that travel.
            header_rows: How many rows of the codec's width a header takes.

        Returns:
            The layout, on the route's device.
        """
        device = route.expand.device
        send_headers, send_rows = _slots(route.send_splits, route.rank, header_rows)
        recv_headers, recv_rows = _slots(route.recv_splits, route.rank, header_rows)
        num_sent = send_headers.numel() + send_rows.numel()
        rows = route.expand if route.unique_rows is None else route.unique_rows[route.expand]
        send_slots = torch.empty(num_sent, dtype=torch.int64, device=device)
        send_slots[send_rows.to(device)] = route.expand
        send_slots[send_headers.to(device)] = route.num_unique + torch.arange(
            header_rows, device=device
        )
        source_slots = torch.zeros(num_sent, dtype=torch.int64, device=device)
        source_slots[send_rows.to(device)] = rows
        return MessageLayout(
            send_slots=send_slots,
            source_slots=source_slots,
            send_header_slots=send_headers.to(device),
            recv_header_slots=recv_headers.to(device),
            recv_row_slots=recv_rows.to(device),
            send_splits=_with_headers(route.send_splits, route.rank, header_rows),
            recv_splits=_with_headers(route.recv_splits, route.rank, header_rows),
        )


def _with_headers(splits: Sequence[int], rank: int, header_rows: int) -> tuple[int, ...]:
    return tuple(0 if peer == rank else header_rows + rows for peer, rows in enumerate(splits))


def _slots(splits: Sequence[int], rank: int, header_rows: int) -> tuple[Tensor, Tensor]:
    """Return the positions of header rows [Q, header_rows] and of data rows."""
    peers = torch.tensor([peer for peer in range(len(splits)) if peer != rank], dtype=torch.int64)
    rows = torch.tensor(splits, dtype=torch.int64)[peers]  # [Q]
    starts = torch.cumsum(rows + header_rows, 0) - (rows + header_rows)  # [Q]
    headers = starts[:, None] + torch.arange(header_rows)  # [Q, header_rows]
    first_row = torch.cumsum(rows, 0) - rows
    shift = torch.repeat_interleave(starts + header_rows - first_row, rows)
    return headers, torch.arange(int(rows.sum())) + shift
