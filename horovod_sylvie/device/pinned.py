"""Page-locked host memory that is used again, and never while a copy or a message needs it.

Making it takes milliseconds and may make the device wait, so it is kept. Exchanges have stable
sizes: from the second step on nothing is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from torch import Tensor

from .streams import DeviceEvent

_SMALLEST: Final = 1 << 12


class PinnedBuffers:
    """Buffers by size, a power of two, as torch's own allocator rounds page-locked memory.

    By size and not by the operation's name: names change with plans, and what has no name any more
    would be kept for ever.

    Args:
        allocate: Makes page-locked memory of a number of bytes, [n], uint8.
    """

    def __init__(self, allocate: Callable[[int], Tensor]) -> None:
        self._allocate = allocate
        self._free: dict[int, list[tuple[Tensor, DeviceEvent | None]]] = {}

    def take(self, nbytes: int) -> Tensor:
        """Return a buffer that nothing uses.

        Args:
            nbytes: How many bytes are needed.

        Returns:
            At least as many, that mean nothing. [n], uint8
        """
        capacity = max(_SMALLEST, 1 << max(0, nbytes - 1).bit_length())
        free = self._free.setdefault(capacity, [])
        for place, (buffer, last_use) in enumerate(free):
            if last_use is None or last_use.is_complete():
                del free[place]
                return buffer
        return self._allocate(capacity)

    def give_back(self, buffer: Tensor, last_use: DeviceEvent | None = None) -> None:
        """Let others have a buffer.

        Args:
            buffer: From `take`.
            last_use: When the device has read it; None where nothing uses it any more.
        """
        self._free[len(buffer)].append((buffer, last_use))


def laid_out(buffer: Tensor, like: Tensor) -> Tensor:
    """Return the first bytes of a buffer in the shape and dtype of another tensor.

    Args:
        buffer: [n], uint8; n at least the bytes of `like`.
        like: Contiguous.
    """
    return buffer[: like.nbytes].view(like.dtype).view(like.shape)
