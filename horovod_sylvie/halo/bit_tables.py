"""What ranks tell each other when the bits of rows are planned.

The owner of a row chooses its bits, and its receivers must know them before the first message
comes. In return the owner learns what it cannot see: with which weights its receivers aggregate
its rows.

Shapes: P ranks, I inner rows, H halo rows, U distinct rows to send, n rows received, S slots (what
is exchanged along one route in one epoch: layers), E edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from ..comm.protocol import Communicator
from .bit_allocation import are_widths, check_bits
from .plan import HaloPlan, Route

_WEIGHTS_NAME: Final = "sylvie.halo.receiver_weights"


@dataclass(frozen=True, eq=False)
class BitTables:
    """The bits of the rows of one route, in one slot.

    Attributes:
        version: Number of the plan of bits that they belong to, the same on every rank.
        sent: Of each distinct row to send. [U], uint8
        received: Of each row received, in the order of the route. [n], uint8
    """

    version: int
    sent: Tensor
    received: Tensor


def exchange_bits(
    comm: Communicator, route: Route, columns: Sequence[Tensor], *, name: str
) -> list[Tensor]:
    """Tell every receiver of a row its bits. Collective: all ranks call, with as many slots.

    One alltoall of a byte per row and slot; none on a single rank, or without slots.

    Args:
        comm: The communicator.
        route: The rows that travel.
        columns: Bits of each distinct row to send, by slot. S tensors [U], uint8
        name: Stable name, the same on every rank.

    Returns:
        Bits of each row received, in the order of the route, by slot. S tensors [n], uint8

    Raises:
        ValueError: A column is no table of bits, or what a rank sent is none; the text names it.
        CommunicationError: A peer ended, was too slow, or has other slots.
    """
    for column in columns:
        check_bits("exchange_bits", "columns", column, route.num_unique)
    if not columns:
        return []
    table = torch.stack(list(columns), dim=1)  # [U, S]
    if comm.size == 1:
        return list(table[:0].unbind(dim=1))
    handle = comm.alltoall(
        table.index_select(0, route.expand), route.send_splits, route.recv_splits, name=name
    )
    received = handle.wait()  # [n, S]
    wrong = torch.nonzero(~are_widths(received))
    if len(wrong) > 0:
        row, slot = wrong[0].tolist()
        splits = torch.tensor(route.recv_splits)
        sender = int(torch.repeat_interleave(torch.arange(comm.size), splits)[row])
        raise ValueError(
            f"exchange_bits: expected 1, 2, 4 or 8 bits for each row in '{name}', got "
            f"{int(received[row, slot])} for row {row} of slot {slot} from rank {sender}. The "
            "ranks run different programs or options, or the message was damaged."
        )
    return [column.contiguous() for column in received.unbind(dim=1)]


def receiver_weights(
    comm: Communicator, plan: HaloPlan, edge_index: Tensor, weight: Tensor
) -> Tensor:
    """Add up, for each row to send, the squared weights with which other ranks aggregate it.

    That is what an error in the row does to its receivers' sums: independent errors add by their
    squares. Collective: all ranks call. One alltoall of 8 bytes per halo row, along the backward
    route; none on a single rank.

    Args:
        comm: The communicator.
        plan: Who sends which rows to whom.
        edge_index: Messages into inner nodes; sources in [0, I + H). [2, E], int64
        weight: With which weight a message is aggregated: for a mean, the edge's weight divided by
            `in_weight` of its target. [E], floating point

    Returns:
        For each distinct row of the forward route. [U], float64

    Raises:
        ValueError: Wrong shapes.
        CommunicationError: A peer ended or was too slow.
    """
    if weight.dim() != 1 or tuple(edge_index.shape) != (2, len(weight)):
        raise ValueError(
            "receiver_weights: expected one number per edge for 'weight' and [2, E] for "
            f"'edge_index', got shapes {tuple(weight.shape)} and {tuple(edge_index.shape)}."
        )
    source = edge_index[0]
    from_halo = source >= plan.num_inner
    halo = weight.new_zeros(plan.num_halo, dtype=torch.float64)
    halo.index_add_(0, source[from_halo] - plan.num_inner, weight[from_halo].double().square())
    total = halo.new_zeros(plan.forward.num_unique)
    if comm.size == 1:
        return total
    handle = comm.alltoall(
        halo[plan.backward.expand, None],
        plan.backward.send_splits,
        plan.backward.recv_splits,
        name=_WEIGHTS_NAME,
    )
    return total.index_add_(0, plan.forward.expand, handle.wait()[:, 0])
