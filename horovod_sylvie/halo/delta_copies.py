"""The receivers' copies of rows that travel as changes, and what a checkpoint holds of them.

Shapes: U distinct rows to send, n rows received, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

State = Mapping[str, Tensor | int]


@dataclass(frozen=True)
class Copies:
    """What both ends hold of the rows of one layer.

    Attributes:
        sent: The receivers' copy of each distinct row that this rank sends; never written to.
            [U, F]
        received: This rank's copy of each row that it receives, in the order of the route; the
            next exchange adds to it. [n, F]
        exchanges: Exchanges made with these copies, the refresh included; at least 1.
    """

    sent: Tensor
    received: Tensor
    exchanges: int


def state_of(copies: Copies | None) -> dict[str, Tensor | int]:
    """Return what a checkpoint needs, in tensors of its own.

    Args:
        copies: The copies; None where there are none yet.

    Returns:
        "exchanges", 0 without copies; with copies also "sent" and "received".
    """
    if copies is None:
        return {"exchanges": 0}
    return {
        "exchanges": copies.exchanges,
        "sent": copies.sent.clone(),
        "received": copies.received.clone(),
    }


def copies_of(
    state: State,
    *,
    num_sent: int,
    num_received: int,
    num_features: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Copies | None:
    """Undo `state_of`, into tensors of their own.

    Args:
        state: From `state_of`.
        num_sent: Distinct rows that this rank sends, U.
        num_received: Rows that it receives, n.
        num_features: Elements of a row, F.
        dtype: Of the copies.
        device: For the copies; those in `state` may be elsewhere.

    Returns:
        The copies, or None.

    Raises:
        ValueError: The state does not fit; the text names what.
    """
    exchanges = state.get("exchanges")
    if type(exchanges) is not int or exchanges < 0:
        raise ValueError(
            "DeltaStream.load: expected an int of at least 0 for 'exchanges' in 'state', got "
            f"{exchanges!r}. Give what DeltaStream.state returned."
        )
    names = ["exchanges", "received", "sent"] if exchanges else ["exchanges"]
    if sorted(state) != names:
        raise ValueError(
            f"DeltaStream.load: expected {names} in 'state', got {sorted(state)}. Give what "
            "DeltaStream.state returned."
        )
    if exchanges == 0:
        return None
    return Copies(
        _checked(state, "sent", (num_sent, num_features), dtype).to(device, copy=True),
        _checked(state, "received", (num_received, num_features), dtype).to(device, copy=True),
        exchanges,
    )


def _checked(state: State, name: str, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    value = state[name]
    if isinstance(value, Tensor) and tuple(value.shape) == shape and value.dtype == dtype:
        return value
    got = type(value).__name__
    if isinstance(value, Tensor):
        got = f"{value.dtype} {tuple(value.shape)}"
    raise ValueError(
        f"DeltaStream.load: expected a tensor {dtype} {shape} for '{name}' in 'state', got {got}. "
        "The state is of another rank, partition or layer: call reset() on all ranks to start "
        "without copies."
    )
