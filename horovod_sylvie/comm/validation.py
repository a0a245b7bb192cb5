"""Checks that both communicators make before they submit anything.

What one rank alone would reject must be rejected here: once an operation is submitted on some
ranks only, the others wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

_MAX_GATHERED_BYTES = 2**31 - 1
_MAX_ROWS = 2**31 - 1  # Horovod's splits are int32

_REDUCIBLE = (torch.float16, torch.float32, torch.float64, torch.int32, torch.int64)
_MOVABLE = (*_REDUCIBLE, torch.uint8, torch.int8, torch.int16)


def check_name(function: str, name: str) -> None:
    """Check an operation's name.

    Args:
        function: Name of the calling function, for the message.
        name: The name to check.

    Raises:
        ValueError: The name is not a non-empty string.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(
            f"{function}: expected a non-empty string for 'name', got {name!r}. "
            "Every rank must give the same operation the same name."
        )


def check_not_in_flight(function: str, name: str, in_flight: Collection[str]) -> None:
    """Check that no operation of this name is under way on this rank.

    Args:
        function: Name of the calling function, for the message.
        name: The name to check.
        in_flight: Names of the operations submitted and not waited on.

    Raises:
        ValueError: One is.
    """
    if name in in_flight:
        raise ValueError(
            f"{function}: expected a name that is not in flight for 'name', got '{name}'. "
            "Wait for the earlier operation first."
        )


def check_tensor(function: str, tensor: Tensor, *, reducible: bool) -> None:
    """Check that a tensor can be sent.

    Args:
        function: Name of the calling function, for the message.
        tensor: The tensor to check.
        reducible: Whether the tensor is summed; fewer dtypes can be.

    Raises:
        TypeError: Not a tensor, or a dtype that cannot be sent.
        ValueError: No dimension, or not contiguous.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"{function}: expected a torch.Tensor for 'tensor', got {type(tensor).__name__}."
        )
    allowed = _REDUCIBLE if reducible else _MOVABLE
    if tensor.dtype not in allowed:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in allowed)
        raise TypeError(
            f"{function}: expected one of ({names}) for the dtype of 'tensor', got {tensor.dtype}. "
            "Convert it, or send its bytes with .view(torch.uint8)."
        )
    if tensor.dim() == 0:
        raise ValueError(
            f"{function}: expected at least one dimension for 'tensor', got a scalar. "
            "Use tensor.reshape(1)."
        )
    if not tensor.is_contiguous():
        raise ValueError(
            f"{function}: expected a contiguous 'tensor', got strides {tensor.stride()} for shape "
            f"{tuple(tensor.shape)}. Call .contiguous() first."
        )


def check_gathered_bytes(function: str, nbytes: int, size: int) -> None:
    """Check that a gathered result is not too large for Horovod.

    Args:
        function: Name of the calling function, for the message.
        nbytes: Bytes of each rank's tensor.
        size: Number of ranks.

    Raises:
        ValueError: It is; Horovod counts its bytes in 32 bits.
    """
    if nbytes * size > _MAX_GATHERED_BYTES:
        raise ValueError(
            f"{function}: expected a result of at most {_MAX_GATHERED_BYTES} bytes, got {nbytes} "
            f"from each of {size} ranks. Send less at once: a lower density, or smaller groups."
        )


def check_splits(
    function: str, argument: str, splits: Sequence[int], *, size: int, num_rows: int | None
) -> None:
    """Check the numbers of rows sent to, or received from, each rank.

    Args:
        function: Name of the calling function, for the message.
        argument: Name of the argument, for the message.
        splits: Rows per rank.
        size: Number of ranks.
        num_rows: What the splits must add up to, or None.

    Raises:
        ValueError: Wrong length, a negative or too large entry, or a wrong sum.
    """
    if len(splits) != size:
        raise ValueError(
            f"{function}: expected one entry per rank ({size}) for '{argument}', "
            f"got {len(splits)} entries."
        )
    for peer, rows in enumerate(splits):
        if not 0 <= rows <= _MAX_ROWS:
            raise ValueError(
                f"{function}: expected a number of rows from 0 to {_MAX_ROWS} for "
                f"'{argument}[{peer}]', got {rows}."
            )
    if num_rows is not None and sum(splits) != num_rows:
        raise ValueError(
            f"{function}: expected '{argument}' to add up to the rows of 'tensor' ({num_rows}), "
            f"got {sum(splits)}."
        )
