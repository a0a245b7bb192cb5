"""Start and wait: halo rows in, and their gradients home.

One exchange is one alltoall of uint8 rows with fixed splits under a stable name, so Horovod's
response cache always hits. With a codec of width W bytes, rank r sends
`(P - 1) * ceil(16 / W) + B` rows forward (B boundary rows, a row counted once per receiver) and
`(P - 1) * ceil(16 / W) + H` rows backward; see [Note: Message format].

The forward and the backward exchange are each other's adjoint: `<extend(x), y>` summed over ranks
equals `<x, adjoint(y)>` for full precision.

Shapes: P ranks, I inner rows, H halo rows, B boundary rows, F features.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..comm.agreement import require_agreement
from ..comm.horovod import HorovodCommunicator
from ..comm.protocol import Communicator
from ..partition.local_partition import Partition
from .codec import Codec, FullPrecision
from .fetched_input import FetchedInputs
from .message import FLAG_NONFINITE, Header, check_headers, header_rows, topic_of
from .packed_codec import OneBit
from .plan import HaloPlan, MessageLayout, Route
from .traffic import Direction, TrafficLedger

logger = logging.getLogger(__name__)

_FULL_PRECISION: Final = FullPrecision()
_ONE_BIT: Final = OneBit()


class HaloExchange:
    """A rank's end of every halo exchange of one model.

    Attributes:
        partition: This rank's partition.
        plan: Who sends which rows to whom.
        codec: How features travel in training.
        comm: The communicator.
        traffic: Bytes sent so far, by layer and direction.
    """

    def __init__(
        self,
        partition: Partition,
        codec: Codec = _ONE_BIT,
        *,
        comm: Communicator | None = None,
        seed: int = 0,
    ) -> None:
        """Fix the plan. Collective: all ranks construct together, with equal options.

        Args:
            partition: This rank's partition.
            codec: How features travel in training. Gradients travel by `codec.for_gradients()`;
                evaluation, and inputs that need no gradient, always in full precision.
            comm: The communicator; Horovod's world by default.
            seed: Of the stochastic rounding.

        Raises:
            PeerError: The ranks' partitions, codecs or seeds differ.
            TypeError: `codec` is not a `Codec`, or `seed` no int.
            ValueError: The partition is not this rank's.
        """
        comm = HorovodCommunicator() if comm is None else comm
        if not isinstance(codec, Codec):
            raise TypeError(
                f"HaloExchange: expected a Codec, such as OneBit(), for 'codec', got {codec!r}."
            )
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise TypeError(f"HaloExchange: expected an int for 'seed', got {seed!r}.")
        if (partition.rank, partition.num_parts) != (comm.rank, comm.size):
            raise ValueError(
                f"HaloExchange: expected the partition of rank {comm.rank} of {comm.size} for "
                f"'partition', got that of rank {partition.rank} of {partition.num_parts}. Use "
                "load_partition(directory, comm.rank, comm.size)."
            )
        require_agreement(
            comm,
            "halo exchange options",
            f"partition {partition.digest[:16]}, {codec}, seed {seed}",
            advice="Start every rank with the same partition directory and options.",
        )
        self.partition = partition
        self.plan = HaloPlan.from_partition(partition)
        self.codec = codec
        self.comm = comm
        self.traffic = TrafficLedger()
        self._seed = seed
        self._layouts: dict[tuple[bool, int], MessageLayout] = {}
        self._steps: dict[str, int] = {}
        self._inputs = FetchedInputs(comm.rank)

    def extend(self, x: Tensor, *, layer: str, training: bool) -> Tensor:
        """Append the halo rows to a rank's inner rows.

        Differentiable: the gradients of halo rows travel home and are added to their owners'.
        An input that needs no gradient, such as the features, does not change from step to step:
        its halo rows are fetched once, in full precision, and kept for as long as the same
        tensor, unmodified, is given.

        Args:
            x: Inner rows. [I, F], floating point
            layer: Stable name, the same on every rank. Collective: all ranks call for the same
                layers in the same order, forward and backward, also those without halo rows.
            training: Whether this is a training step; then the codec is used. Otherwise, and
                under `torch.no_grad`, rows travel fresh and in full precision.

        Returns:
            Inner rows, then halo rows by owner. [I + H, F], dtype of `x`

        Raises:
            TypeError: `x` is not a dense tensor.
            ValueError: Wrong shape or dtype, an input that was made under `inference_mode` is given
                in training, or a peer sent what it should not have.
            FloatingPointError: Rows of some rank cannot be represented; raised on every rank.
            CommunicationError: A peer ended or was too slow.
        """
        self._check(x)
        fetched = self._inputs.find(x, layer)
        if fetched is not None:
            return fetched
        if torch.is_grad_enabled() and x.requires_grad:
            codec = self.codec if training else _FULL_PRECISION
            direction: Direction = "forward" if training else "evaluation"
            extended: Tensor = _Extend.apply(x, self, layer, direction, codec)  # type: ignore[no-untyped-call]
            return extended
        if not (training and torch.is_grad_enabled()):
            return self._fetch(x, layer, "evaluation", _FULL_PRECISION)
        self._inputs.check(x, layer)
        extended = self._fetch(x, layer, "features", _FULL_PRECISION)
        self._inputs.keep(x, layer, extended)
        return extended

    def _check(self, x: Tensor) -> None:
        expected = f"extend: expected floating-point inner rows [{self.plan.num_inner}, F] for 'x'"
        if not isinstance(x, Tensor):
            raise TypeError(f"{expected}, got {type(x).__name__}. Give a torch tensor.")
        if x.layout != torch.strided:
            raise TypeError(f"{expected}, got layout {x.layout}. Give a dense tensor.")
        if not x.is_floating_point() or x.dim() != 2 or x.shape[1] == 0:
            raise ValueError(f"{expected}, got {x.dtype} {tuple(x.shape)}.")
        if x.shape[0] != self.plan.num_inner:
            raise ValueError(
                f"{expected}, got {x.shape[0]} rows. Give the rows of the inner nodes only, in the "
                "partition's order."
            )

    def _fetch(self, x: Tensor, layer: str, direction: Direction, codec: Codec) -> Tensor:
        extended = x.new_empty((self.plan.num_inner + self.plan.num_halo, x.shape[1]))
        extended[: self.plan.num_inner] = x.detach()
        halo = extended[self.plan.num_inner :]
        self._move(extended[: self.plan.num_inner], layer, direction, codec, out=halo)
        return extended

    def _return_gradients(self, gradient: Tensor, layer: str, codec: Codec) -> Tensor:
        """Send the gradients of halo rows home; return the inner rows' sums. [I, F]."""
        inner, halo = gradient[: self.plan.num_inner], gradient[self.plan.num_inner :]
        boundary = gradient.new_empty((len(self.plan.send_index), gradient.shape[1]))
        self._move(halo.contiguous(), layer, "backward", codec, out=boundary)
        # Rows arrive in rank order, so the order of summation, and its rounding, never changes.
        return inner.clone().index_add_(0, self.plan.send_index, boundary)

    def _move(
        self, rows: Tensor, layer: str, direction: Direction, codec: Codec, *, out: Tensor
    ) -> None:
        """Encode rows, exchange them, and decode what arrives into `out`."""
        if self.comm.size == 1:
            return
        route = self.plan.backward if direction == "backward" else self.plan.forward
        name = f"sylvie.halo.{layer}.{direction}"
        width = codec.row_bytes(rows.shape[1], rows.dtype)
        layout = self._layout(route, header_rows(width))
        step = self._steps.get(name, 0)
        self._steps[name] = step + 1
        messages, nonfinite = codec.encode(rows, route, layout, self._key(name, step))
        topic = topic_of(self.plan.digest, name, width, rows.dtype)
        header = Header(codec.identifier, topic, step, FLAG_NONFINITE if nonfinite else 0)
        messages[layout.send_header_slots] = header.to_rows(width).to(messages.device)
        handle = self.comm.alltoall(messages, layout.send_splits, layout.recv_splits, name=name)
        self._count(route, layer, direction, rows, messages.numel())
        received = handle.wait()
        peers = [peer for peer in range(self.comm.size) if peer != self.comm.rank]
        bad = check_headers(received[layout.recv_header_slots], header, peers, name)
        if nonfinite or bad:
            raise FloatingPointError(
                f"rank {self.comm.rank}: '{name}': the rows of rank "
                f"{', '.join(map(str, sorted([*bad, *([self.comm.rank] * nonfinite)])))} hold Inf, "
                f"NaN or values beyond the range of {codec}. Nothing of this exchange was used. "
                "Look for a diverging loss or a too large learning rate; FullPrecision() passes "
                "such values on."
            )
        codec.decode(received, layout, out)

    def _layout(self, route: Route, num_header_rows: int) -> MessageLayout:
        key = (route is self.plan.backward, num_header_rows)
        if key not in self._layouts:
            self._layouts[key] = MessageLayout.of(route, num_header_rows)
        return self._layouts[key]

    def _key(self, name: str, step: int) -> int:
        text = f"{self._seed}|{self.comm.rank}|{name}|{step}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")

    def _count(
        self, route: Route, layer: str, direction: Direction, rows: Tensor, bytes_sent: int
    ) -> None:
        width = _FULL_PRECISION.row_bytes(rows.shape[1], rows.dtype)
        full_rows = sum(route.send_splits) + (self.comm.size - 1) * header_rows(width)
        self.traffic.record(layer, direction, bytes_sent, full_rows * width)
        logger.debug(
            "r%d | %s %s -> %d rows %d bytes",
            self.comm.rank,
            layer,
            direction,
            sum(route.send_splits),
            bytes_sent,
        )


class _Extend(torch.autograd.Function):
    """The differentiable exchange: forward along the plan, backward against it."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, halo: HaloExchange, layer: str, direction: Direction, codec: Codec
    ) -> Tensor:
        ctx.halo, ctx.layer, ctx.codec = halo, layer, codec.for_gradients()
        return halo._fetch(x, layer, direction, codec)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        returned = ctx.halo._return_gradients(gradient, ctx.layer, ctx.codec)
        return returned, None, None, None, None
