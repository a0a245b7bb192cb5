"""Exchange of one sparse gradient, as `torch.nn.Embedding(sparse=True)` gives it, by row.

Rows that a rank touched several times are summed before they are sent. How many rows each rank
has comes from the status that all ranks exchange first, so a rank without any takes part, and all
ranks make the same choice: rows, or one dense allreduce where that moves fewer bytes.

A payload is [M] rows of 8 bytes of row number (little-endian, -1 for none) and the row's elements;
M is the largest number of rows on any rank, rounded up to a power of two, so that few shapes
occur. Messages: one allgather of M (8 + row bytes) per rank, or one allreduce of the whole.

Shapes: P ranks, N rows of the parameter, E elements of a row, M rows of a payload.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from ..comm.protocol import Communicator, Handle
from .exchange import ExchangeCost, Step, drain, ring_allgather_bytes, ring_allreduce_bytes
from .parameter import ExchangedParameter
from .payload import PayloadError
from .reduction import Reduction

_ROW_NUMBER_BYTES = 8


class SparseRowsExchange:
    """Exchanges the rows of one parameter's sparse gradient.

    Args:
        comm: The communicator.
        parameter: The parameter. [N, ...]
        reduction: Sum or mean.
    """

    def __init__(
        self, comm: Communicator, parameter: ExchangedParameter, reduction: Reduction
    ) -> None:
        self.name = parameter.name
        self.parameters = (parameter,)
        self.cost = ExchangeCost()
        self._comm = comm
        self._reduction = reduction
        self._num_rows = parameter.tensor.shape[0]
        self._row_elements = parameter.num_elements // max(1, self._num_rows)
        self._dtype = parameter.tensor.dtype
        # What travels: float32 also for bfloat16, which Horovod cannot sum
        self._wire_dtype = torch.float64 if self._dtype == torch.float64 else torch.float32
        self._counts: tuple[int, ...] = ()
        self._clip = 1.0
        self._handle: Handle | None = None
        self._dense: Tensor | None = None
        self._result: tuple[Tensor, Tensor] | None = None

    def expect(self, counts: Sequence[int]) -> None:
        """Say how many rows each rank will send, before `start`. P entries."""
        self._counts = tuple(counts)

    def start(self, step: Step) -> None:
        """Submit the local rows."""
        started_s = time.perf_counter()
        rows, values = self._local_rows(step)
        row_bytes = self._row_elements * self._wire_dtype.itemsize
        most = 1 << (max(self._counts) - 1).bit_length() if max(self._counts) else 0
        sparse_bytes = ring_allgather_bytes(most * (_ROW_NUMBER_BYTES + row_bytes), self._comm.size)
        dense_bytes = ring_allreduce_bytes(self._num_rows * (row_bytes + 4), self._comm.size)
        name = f"sylvie.grad.{self.name}"
        if most == 0:
            self._handle = None
        elif sparse_bytes < dense_bytes:
            payload = _rows_to_bytes(rows, values, most)
            self._handle = self._comm.allgather(payload, name=f"{name}.rows")
            self.cost.count(payload.nbytes, sparse_bytes)
        else:
            # One column more counts the ranks that have a row: a sum of zero is a row too
            counted = torch.cat([values, torch.ones_like(values[:, :1])], dim=1)
            self._dense = torch.zeros(
                self._num_rows, self._row_elements + 1, dtype=values.dtype, device=values.device
            ).index_add_(0, rows, counted)
            self._handle = self._comm.allreduce_(self._dense, name=f"{name}.dense")
            self.cost.count(self._dense.nbytes, dense_bytes)
        self.cost.selection_s += time.perf_counter() - started_s

    def proceed(self) -> None:
        """Do nothing: there is one phase."""

    def wait(self) -> list[str]:
        """Wait, check the row numbers, and say whether the values are finite."""
        handle, self._handle = self._handle, None
        received = None if handle is None else self.cost.wait(handle)
        self._result = self._nothing()
        if self._dense is not None:
            rows = self._dense[:, -1].nonzero()[:, 0]
            self._result = rows, self._dense[rows, :-1]
        elif received is not None:
            self._result = self._rows_of(received)
        if bool(torch.isfinite(self._result[1]).all()):
            return []
        return [f"'{self.name}' (the sum over ranks)"]

    def decode(self, num_active: int) -> None:
        """Make the summed rows the gradient; a coalesced sparse one. Sums are in rank order."""
        assert self._result is not None, "decode comes after wait"
        started_s = time.perf_counter()
        rows, values = self._result
        tensor = self.parameters[0].tensor
        values = values * self._reduction.scale(max(1, num_active))
        summed = torch.sparse_coo_tensor(
            rows[None],
            values.view(-1, *tensor.shape[1:]),
            tuple(tensor.shape),
            check_invariants=False,  # `wait` has checked the row numbers
        ).coalesce()
        tensor.grad = summed.to(self._dtype)
        self.revert()
        self.cost.decoding_s += time.perf_counter() - started_s

    def commit(self) -> None:
        """Do nothing: no step leaves anything."""

    def revert(self) -> None:
        """Forget what came."""
        handle, self._handle = self._handle, None
        drain(handle)
        self._dense = None
        self._result = None

    def _nothing(self) -> tuple[Tensor, Tensor]:
        device = self.parameters[0].tensor.device
        return (
            torch.zeros(0, dtype=torch.int64, device=device),
            torch.zeros(0, self._row_elements, dtype=self._wire_dtype, device=device),
        )

    def _local_rows(self, step: Step) -> tuple[Tensor, Tensor]:
        grad = self.parameters[0].tensor.grad
        if grad is None or step.joined:
            return self._nothing()
        rows, values = sparse_rows(grad)
        return rows, values.reshape(len(rows), -1).to(self._wire_dtype) * step.clip

    def _rows_of(self, received: Tensor) -> tuple[Tensor, Tensor]:
        """Return all ranks' rows, in rank order, after checking their numbers."""
        width = _ROW_NUMBER_BYTES + self._row_elements * self._wire_dtype.itemsize
        payloads = received.view(self._comm.size, -1, width)  # [P, M, width]
        numbers = payloads[..., :_ROW_NUMBER_BYTES].contiguous().view(torch.int64)[..., 0]
        present = numbers != -1
        outside = present & ((numbers < 0) | (numbers >= self._num_rows))
        counts = present.sum(1)
        wrong = outside.any(1) | (counts.cpu() != torch.tensor(self._counts)).to(counts.device)
        if bool(wrong.any()):
            rank = int(wrong.nonzero()[0])
            raise PayloadError(
                f"the rows of rank {rank} for the sparse gradient '{self.name}' are wrong: "
                f"{int(counts[rank])} rows of which {int(outside[rank].sum())} lie outside "
                f"[0, {self._num_rows}), expected {self._counts[rank]}. Nothing of it was used."
            )
        values = payloads[present][:, _ROW_NUMBER_BYTES:].contiguous().view(self._wire_dtype)
        return numbers[present], values


def sparse_rows(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of a sparse gradient, each once.

    Args:
        grad: Sparse COO. [N, ...]

    Returns:
        Row numbers, ascending, and their elements. [m], int64; [m, ...]
    """
    grad = grad.detach()
    if grad.sparse_dim() != 1:
        grad = grad.to_dense().to_sparse(1)
    grad = grad.coalesce()
    return grad.indices()[0], grad.values()


def _rows_to_bytes(rows: Tensor, values: Tensor, num_rows: int) -> Tensor:
    """Lay rows out for the wire. rows: [m]; values: [m, E] -> [M, 8 + row bytes], uint8."""
    numbers = torch.full((num_rows, 1), -1, dtype=torch.int64, device=rows.device)
    numbers[: len(rows), 0] = rows
    padded = torch.zeros(num_rows, values.shape[1], dtype=values.dtype, device=values.device)
    padded[: len(rows)] = values
    return torch.cat([numbers.view(torch.uint8), padded.view(torch.uint8)], dim=1)
