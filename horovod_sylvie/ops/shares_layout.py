"""How the elements of one parameter are dealt to P owners: in chunks of 4096, in turn.

Element i belongs to owner (i // 4096) % P; in the share of that owner it is element
(i // (4096 P)) * 4096 + i % 4096. Shares differ by at most one chunk, the first is the largest,
and the last are empty where there are fewer chunks than owners. cpp/share.hpp is the same in C++.

Shapes: P shares, D elements of a parameter, S elements of a share.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

CHUNK_ELEMENTS: Final = 4096


def elements_of_share(num_elements: int, num_shares: int, share: int) -> int:
    """Return S, for arguments that are checked."""
    turns, rest = divmod(num_elements, num_shares * CHUNK_ELEMENTS)
    last = min(max(rest - share * CHUNK_ELEMENTS, 0), CHUNK_ELEMENTS)
    return turns * CHUNK_ELEMENTS + last


def places_of_share(
    num_elements: int, num_shares: int, share: int, *, device: torch.device
) -> Tensor:
    """Return where the elements of a share are in the parameter. [S], int64, ascending."""
    element = torch.arange(elements_of_share(num_elements, num_shares, share), device=device)
    chunk = element // CHUNK_ELEMENTS
    return element + (chunk * (num_shares - 1) + share) * CHUNK_ELEMENTS
