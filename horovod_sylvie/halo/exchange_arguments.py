"""The checks of what `HaloExchange` is given. Every text names what was expected, and what came."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .automatic import Automatic
from .bit_policy import BudgetBits, DegreeBits
from .codec import Codec
from .delta import Delta
from .packed_codec import OneBit
from .staleness import Staleness


def check_options(codec: Any, staleness: Any, bits: Any, seed: Any, name: Any) -> None:
    """Check the options of a `HaloExchange`.

    Args:
        codec: How features travel.
        staleness: When rows may be old.
        bits: How many bits each row gets.
        seed: Of the rounding.
        name: Begins the names of operations.

    Raises:
        TypeError: One is of the wrong kind.
        ValueError: They do not go together.
    """
    if not isinstance(codec, Codec | Delta | Automatic):
        raise TypeError(
            "HaloExchange: expected a Codec, such as OneBit(), Delta or Automatic for 'codec', got "
            f"{codec!r}."
        )
    if not isinstance(staleness, Staleness):
        raise TypeError(
            "HaloExchange: expected Synchronous(), Pipelined() or BoundedStaleness() for "
            f"'staleness', got {staleness!r}."
        )
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"HaloExchange: expected an int for 'seed', got {seed!r}.")
    if not isinstance(name, str) or not name:
        raise ValueError(
            f"HaloExchange: expected a text that is not empty for 'name', got {name!r}."
        )
    if isinstance(codec, Automatic) and staleness.measures_drift:
        raise ValueError(
            f"HaloExchange: expected another codec than Automatic with {staleness}: how often rows "
            "are old would change during the trial, and decide it. Try it with Synchronous(), and "
            "give the codec that it chose."
        )
    if bits is None:
        return
    if not isinstance(bits, BudgetBits | DegreeBits):
        raise TypeError(
            f"HaloExchange: expected BudgetBits, DegreeBits or None for 'bits', got {bits!r}."
        )
    if not isinstance(codec, OneBit):
        raise ValueError(
            f"HaloExchange: expected OneBit for 'codec' with bits={bits}, got {codec}. Rows of one "
            "bit use it, and rows of more bits are rounded as Bits does."
        )


def check_rows(x: Any, num_inner: int) -> None:
    """Check the rows that are given to an exchange.

    Args:
        x: Inner rows. [I, F]
        num_inner: The number of inner rows, I.

    Raises:
        TypeError: They are no dense tensor.
        ValueError: They have another shape or dtype.
    """
    expected = f"HaloExchange.start: expected floating-point inner rows [{num_inner}, F] for 'x'"
    if not isinstance(x, Tensor):
        raise TypeError(f"{expected}, got {type(x).__name__}. Give a torch tensor.")
    if x.layout != torch.strided:
        raise TypeError(f"{expected}, got layout {x.layout}. Give a dense tensor.")
    if not x.is_floating_point() or x.dim() != 2 or x.shape[1] == 0:
        raise ValueError(f"{expected}, got {x.dtype} {tuple(x.shape)}.")
    if x.shape[0] != num_inner:
        raise ValueError(
            f"{expected}, got {x.shape[0]} rows. Give the rows of the inner nodes only, in the "
            "partition's order."
        )
