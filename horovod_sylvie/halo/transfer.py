"""One exchange, from the rows that are sent to those that arrive.

Shapes: U distinct rows to send, n rows received, F features.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ..comm.protocol import Communicator, Handle
from ..device.from_host import moved_from_host
from ..ops.row_sums import RowSums
from .codec import FullPrecision
from .format import Format
from .message import (
    FLAG_NONFINITE,
    FLAG_STALE,
    Header,
    check_headers,
    header_rows,
    topic_of,
    write_outcome,
)
from .plan import HaloPlan, Route
from .traffic import Direction, ExchangeTimes, TrafficLedger

logger = logging.getLogger(__name__)


class Transfer:
    """Messages of one exchange: encoded, then submitted, then finished, each once.

    Args:
        comm: The communicator.
        format_: How rows stand in the messages.
        messages: What is sent, headers included.
        header: What is in the headers, but for what the rows themselves tell.
        written: All that is in them, on the messages' device. [HEADER_BYTES], uint8
        name: The operation's name.
        record_times: Told what waiting and decoding took.
    """

    def __init__(
        self,
        comm: Communicator,
        format_: Format,
        messages: Tensor,
        header: Header,
        written: Tensor,
        name: str,
        record_times: Callable[[ExchangeTimes], None],
    ) -> None:
        self._comm = comm
        self._format = format_
        self._messages: Tensor | None = messages
        self._header = header
        self._written = written
        self._name = name
        self._record_times = record_times
        self._handle: Handle | None = None

    def submit(self) -> None:
        """Hand the messages to the communicator, unless that was done. Does not block."""
        if self._handle is None:
            assert self._messages is not None, "messages are there until they are submitted"
            self._handle = self._comm.alltoall(
                self._messages, self._format.send_splits, self._format.recv_splits, name=self._name
            )
            self._messages = None  # the handle owns them

    def finish(self, out: Tensor) -> float:
        """Wait for the peers' messages, and decode their rows.

        Args:
            out: Written. [n, F], contiguous

        Returns:
            The drift of all ranks' rows; NaN where it was not measured.

        Raises:
            FloatingPointError: Rows of some rank cannot be represented; raised on every rank.
            ValueError: A peer sent what it should not have.
            CommunicationError: A peer ended or was too slow.
        """
        return self._finish(lambda received: self._format.decode(received, out))

    def add(self, sums: RowSums, out: Tensor) -> None:
        """Wait for the peers' messages, and add their rows to those of a matrix.

        Args:
            sums: Which is added to which.
            out: Written, and of no use after an error. [N, F], contiguous

        Raises:
            Exception: As `finish`.
        """
        self._finish(lambda received: self._format.add(received, sums, out))

    def _finish(self, decode: Callable[[Tensor], None]) -> float:
        """Wait, check headers, decode what was received, and return the drift."""
        self.submit()
        assert self._handle is not None, "it was submitted"
        started_s = time.perf_counter()
        received = self._handle.wait()
        came_s = time.perf_counter()
        peers = [peer for peer in range(self._comm.size) if peer != self._comm.rank]
        # The only bytes that the host reads, all at once
        headers = torch.cat([self._written[None], self._format.read_headers(received)]).cpu()
        own = self._header.as_sent(headers[0])
        said = check_headers(headers[1:], own, peers, self._name)
        bad = sorted(said.nonfinite + [self._comm.rank] * bool(own.flags & FLAG_NONFINITE))
        if bad:
            raise FloatingPointError(
                f"rank {self._comm.rank}: '{self._name}': the rows of rank "
                f"{', '.join(map(str, bad))} hold Inf, NaN or values beyond the range of "
                f"{self._format}. Nothing of this exchange was used. Look for a diverging loss or "
                "a too large learning rate; FullPrecision() passes such values on."
            )
        decode(received)
        self._record_times(
            ExchangeTimes(waiting_s=came_s - started_s, decoding_s=time.perf_counter() - came_s)
        )
        return said.drift


class Sender:
    """Makes the transfers of one rank, numbers them, and counts their bytes.

    Args:
        comm: The communicator.
        plan: Who sends which rows to whom.
        seed: Of the stochastic rounding.
        name: Begins the names of operations.

    Attributes:
        traffic: Bytes sent so far, by layer and direction, and times.
        steps: Exchanges made so far, by name.
    """

    def __init__(self, comm: Communicator, plan: HaloPlan, seed: int, *, name: str) -> None:
        self.traffic = TrafficLedger()
        self.steps: dict[str, int] = {}
        self._comm = comm
        self._plan = plan
        self._seed = seed
        self._name = name

    def encode(
        self,
        rows: Tensor,
        format_: Format,
        route: Route,
        *,
        layer: str,
        direction: Direction,
        is_stale: bool = False,
        norms: Tensor | None = None,
        suffix: str = "",
    ) -> Transfer:
        """Encode the rows of one exchange; nothing is submitted yet.

        Args:
            rows: What the route picks from. [N, F], contiguous
            format_: How rows stand in the messages.
            route: Which rows go where.
            layer: Name of the layer.
            direction: Under which the bytes are counted.
            is_stale: Whether this rank computes with the rows of the epoch before.
            norms: Squared norms of the rows' change and of the rows, [2], float64; None where
                drift is not measured.
            suffix: Tells operations of one layer and direction apart.

        Returns:
            The transfer.
        """
        started_s = time.perf_counter()
        name = f"sylvie.{self._name}.{layer}.{direction}{suffix}"
        step = self.steps.get(name, 0)
        self.steps[name] = step + 1
        messages, nonfinite = format_.encode(rows, self._key(name, step))
        header = Header(
            format_.identifier,
            topic_of(self._plan.digest, name, format_.description),
            step,
            FLAG_STALE * is_stale,
        )
        written = moved_from_host(header.to_tensor(), messages.device)
        write_outcome(written, nonfinite, norms)
        format_.write_headers(messages, written)
        self._count(route, layer, direction, rows, messages.numel())
        record_times = partial(self.traffic.record_times, direction)
        record_times(ExchangeTimes(encoding_s=time.perf_counter() - started_s))
        return Transfer(self._comm, format_, messages, header, written, name, record_times)

    def _key(self, name: str, step: int) -> int:
        text = f"{self._seed}|{self._comm.rank}|{name}|{step}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")

    def _count(
        self, route: Route, layer: str, direction: Direction, rows: Tensor, bytes_sent: int
    ) -> None:
        width = FullPrecision().row_bytes(rows.shape[1], rows.dtype)
        full_rows = sum(route.send_splits) + (self._comm.size - 1) * header_rows(width)
        self.traffic.record(layer, direction, bytes_sent, full_rows * width)
        logger.debug(
            "r%d | %s %s -> %d rows %d bytes",
            self._comm.rank,
            layer,
            direction,
            sum(route.send_splits),
            bytes_sent,
        )


class DriftMeter:
    """How much the rows that this rank sends change from epoch to epoch, in full precision.

    Attributes:
        rows: The distinct rows sent last, by layer and direction. [U, F] each
    """

    def __init__(self) -> None:
        self.rows: dict[str, Tensor] = {}

    def measure(self, rows: Tensor, route: Route, name: str) -> Tensor:
        """Return squared norms of the change since the last call, and of the rows; keep the rows.

        Args:
            rows: What the route picks from. [N, F]
            route: Which rows are sent.
            name: Layer and direction.

        Returns:
            Change and norm, on the rows' device: the host does not wait for them. Where there is
            nothing to compare with, the change is the norm. [2], float64
        """
        if route.unique_rows is None:
            picked = rows.detach().clone()
        else:
            picked = rows.detach().index_select(0, route.unique_rows)
        before = self.rows.get(name)
        self.rows[name] = picked
        norm = _squared_norm(picked)
        if before is None or (before.shape, before.dtype) != (picked.shape, picked.dtype):
            return torch.stack([norm, norm])
        return torch.stack([_squared_norm(torch.sub(picked, before, out=before)), norm])


def _squared_norm(rows: Tensor) -> Tensor:
    # Squares of half-precision rows leave their range; single precision is enough for a bound
    dtype = torch.promote_types(rows.dtype, torch.float32)
    norm: Tensor = torch.linalg.vector_norm(rows, dtype=dtype)
    return norm.double().square()
