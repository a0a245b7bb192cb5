"""A checksum of bytes: the public door and its plain twin. Finds accidents, not forgeries.

The sum over the 8-byte words w_j, little-endian, of mix64(w_j ^ mix64(j + 1)) modulo 2**64, with
mix64 of cpp/counter_rng.hpp. mix64 is one to one, so a change inside one word always shows; words
that change places do, but for one chance in 2**64.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .native import native_or_none
from .top_k_arguments import check_vector

_WORDS_PER_CHUNK: Final = 1 << 16  # temporaries that stay in cache


def checksum(data: Tensor) -> int:
    """Sum up bytes so that any change of a word changes the sum.

    Args:
        data: [n], uint8, contiguous; n a multiple of 8.

    Returns:
        The sum, in [0, 2**64).

    Raises:
        TypeError: If `data` is no tensor, or not of uint8.
        ValueError: If its shape or layout is wrong.

    Note:
        Uses `torch.get_num_threads()` threads. A tensor of another device is copied to the CPU.
    """
    check_vector("checksum", "data", data, (torch.uint8,))
    if data.shape[0] % 8 != 0:
        msg = (
            f"checksum: expected a multiple of 8 bytes for 'data', got {data.shape[0]}. "
            "Pad it with zeros."
        )
        raise ValueError(msg)
    data = data.cpu()
    native = native_or_none()
    return checksum_twin(data) if native is None else checksum_kernel(native, data)


def checksum_kernel(native: Any, data: Tensor, instruction_set: str | None = None) -> int:
    """Call `_native.checksum`. `instruction_set` forces one; None for the best."""
    result: int = native.checksum(
        data=data.data_ptr(),
        nbytes=data.nbytes,
        num_threads=torch.get_num_threads(),
        instruction_set=instruction_set,
    )
    return result


def checksum_twin(data: Tensor) -> int:
    """Do what `_native.checksum` does, in numpy."""
    words = np.frombuffer(data.numpy().tobytes(), dtype="<u8")
    total = 0
    for start in range(0, len(words), _WORDS_PER_CHUNK):
        chunk = words[start : start + _WORDS_PER_CHUNK]
        places = np.arange(start + 1, start + 1 + len(chunk), dtype=np.uint64)
        total += int(_mix64(chunk ^ _mix64(places)).sum(dtype=np.uint64))
    return total % (1 << 64)


def _mix64(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ value >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ value >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = value ^ value >> np.uint64(31)
    return mixed
