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

from .kernel_devices import made_current, native_on, stream_of
from .top_k_arguments import check_aligned, check_rows, check_vector

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
        Uses `torch.get_num_threads()` threads. Of a CUDA tensor, waits for the device.
    """
    check_vector("checksum", "data", data, (torch.uint8,))
    if data.shape[0] % 8 != 0:
        msg = (
            f"checksum: expected a multiple of 8 bytes for 'data', got {data.shape[0]}. "
            "Pad it with zeros."
        )
        raise ValueError(msg)
    check_aligned("checksum", "data", data)
    return int(_sums(data.view(1, -1))) % (1 << 64)


def checksum_rows(rows: Tensor) -> Tensor:
    """Sum up each row of bytes, without waiting for a device.

    Args:
        rows: [P, B], uint8, contiguous; B a multiple of 8.

    Returns:
        What `checksum` returns of each, modulo 2**64. [P], int64, on the device of `rows`

    Raises:
        TypeError: If `rows` is no tensor, or not of uint8.
        ValueError: If its shape or layout is wrong.
    """
    check_rows("checksum_rows", "rows", rows)
    return _sums(rows)


def checksum_kernel(
    native: Any, rows: Tensor, *, instruction_set: str | None = None, stream: int | None = None
) -> Tensor:
    """Call `_native.checksum`.

    Args:
        native: The native library.
        rows: [P, B], uint8; P at least 1.
        instruction_set: Forces one; None for the best. For tests.
        stream: Where to run; None for the current stream of a GPU, and for the CPU. For tests.

    Returns:
        [P], int64.
    """
    sums = torch.empty(rows.shape[0], dtype=torch.int64, device=rows.device)
    with made_current(rows.device):
        native.checksum(
            rows=rows.data_ptr(),
            rows_bytes=rows.nbytes,
            num_rows=rows.shape[0],
            sums=sums.data_ptr(),
            num_threads=torch.get_num_threads(),
            stream=stream_of(rows.device) if stream is None else stream,
            instruction_set=instruction_set,
        )
    return sums


def checksum_twin(rows: Tensor) -> Tensor:
    """Do what `_native.checksum` does, in numpy; waits for a device. Returns [P], int64."""
    sums = [_sum_of(row) for row in rows.cpu()]
    return torch.from_numpy(np.array(sums, dtype=np.uint64).view(np.int64)).to(rows.device)


def _sum_of(data: Tensor) -> int:
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


def _sums(rows: Tensor) -> Tensor:
    native = native_on(rows.device, "summing up the bytes of")
    return checksum_twin(rows) if native is None else checksum_kernel(native, rows)
