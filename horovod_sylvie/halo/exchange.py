"""Start and wait: halo rows in, and their gradients home.

One exchange is one alltoall of uint8 rows with fixed splits under a stable name, so Horovod's
response cache always hits. With a codec of width W bytes, rank r sends
`(P - 1) * ceil(32 / W) + B` rows forward (B boundary rows, a row counted once per receiver) and
`(P - 1) * ceil(32 / W) + H` rows backward; see [Note: Message format].

The forward and the backward exchange are each other's adjoint: `<extend(x), y>` summed over ranks
equals `<x, adjoint(y)>` for full precision.

Here: what a layer and an optimizer ask for. Not here: what is sent and kept (`pipeline.py`), how
rows stand in messages (`format.py`), when they may be old (`staleness.py`).

Shapes: P ranks, I inner rows, H halo rows, B boundary rows, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torch import Tensor

from ..comm.agreement import require_agreement
from ..comm.horovod import HorovodCommunicator
from ..comm.protocol import Communicator
from ..partition.local_partition import Partition
from .automatic import Automatic
from .bit_planner import BitPlanner
from .bit_policy import BudgetBits, DegreeBits
from .codec import Codec
from .delta import Delta
from .epoch_clock import EpochClock
from .epoch_report import EpochReport, EpochReporter
from .exchange_arguments import check_options, check_rows
from .fetched_input import FetchedInputs
from .formats import Formats
from .halo_rows import HaloRows
from .halo_state import HaloParts
from .packed_codec import OneBit
from .pipeline import Pipeline
from .plan import HaloPlan
from .staleness import Staleness, Synchronous
from .starter import Starter
from .traffic import TrafficLedger
from .transfer import Sender

_ONE_BIT: Final = OneBit()
_SYNCHRONOUS: Final = Synchronous()


class HaloExchange:
    """A rank's end of every halo exchange of one model.

    Attributes:
        partition: This rank's partition.
        plan: Who sends which rows to whom.
        codec: How features travel in training, as given.
        staleness: When rows of the epoch before are used.
        overlap: Whether layers aggregate interior rows while halo rows are on their way.
        smaller_side: Whether layers may exchange what is behind their linear map.
        comm: The communicator.
        has_model: Whether a model was converted with it.
        parts: What changes from epoch to epoch; for the package's own use.
    """

    def __init__(
        self,
        partition: Partition,
        codec: Codec | Delta | Automatic = _ONE_BIT,
        *,
        staleness: Staleness = _SYNCHRONOUS,
        bits: BudgetBits | DegreeBits | None = None,
        overlap: bool = True,
        smaller_side: bool = True,
        comm: Communicator | None = None,
        seed: int = 0,
        name: str = "halo",
    ) -> None:
        """Fix the plan. Collective: all ranks construct together, with equal options.

        Args:
            partition: This rank's partition.
            codec: How features travel in training: a codec; `Delta(codec)`, to send changes; or
                `Automatic(codec)`, to measure whether the codec pays. Gradients travel by the
                codec's `for_gradients()`; evaluation, and inputs that need no gradient, always in
                full precision.
            staleness: When a layer may compute with the rows of the epoch before.
            bits: How many bits each row gets, where that is decided row by row; the codec must be
                `OneBit` then, which says what one bit means. None: the codec's.
            overlap: Whether a layer aggregates the rows that read no halo row while those are on
                their way. The result is the same, to the order of summation; dropout inside a
                convolution draws other masks of the same kind.
            smaller_side: Whether GCN, GAT and SAGE layers exchange rows behind their linear map
                where that saves bytes; see `Codec.for_products`. Not with `bits` or `Delta`.
            comm: The communicator; Horovod's world by default.
            seed: Of the stochastic rounding.
            name: Begins the names of operations. Two exchanges that train in turns on one
                communicator need different ones.

        Raises:
            PeerError: The ranks' partitions or options differ.
            TypeError: An argument is of the wrong kind.
            ValueError: The partition is not this rank's, or options do not go together.
        """
        comm = HorovodCommunicator() if comm is None else comm
        check_options(codec, staleness, bits, seed, name)
        if (partition.rank, partition.num_parts) != (comm.rank, comm.size):
            raise ValueError(
                f"HaloExchange: expected the partition of rank {comm.rank} of {comm.size} for "
                f"'partition', got that of rank {partition.rank} of {partition.num_parts}. Use "
                "load_partition(directory, comm.rank, comm.size)."
            )
        options = f"{codec}, {staleness}, bits {bits}, smaller side {smaller_side}, seed {seed}"
        require_agreement(
            comm,
            "halo exchange options",
            f"partition {partition.digest[:16]}, {options}",
            advice="Start every rank with the same partition directory and options.",
        )
        self.partition = partition
        self.plan = plan = HaloPlan.from_partition(partition)
        self.codec = codec
        self.staleness = staleness
        self.overlap = overlap
        self.smaller_side = smaller_side
        self.comm = comm
        planner = None
        if bits is not None and comm.size > 1:
            assert isinstance(codec, OneBit), "check_options has refused others"
            planner = BitPlanner(comm, partition, plan, codec, bits, name=name)
        clock, sender = EpochClock(), Sender(comm, plan, seed, name=name)
        formats = Formats(plan, codec, planner)
        self.parts = HaloParts(
            comm=comm,
            plan=plan,
            options=options,
            clock=clock,
            sender=sender,
            formats=formats,
            pipeline=Pipeline(comm, plan, sender, staleness, clock, formats.of),
            inputs=FetchedInputs(comm.rank),
            bits=planner,
        )
        self.has_model = False
        self._reporter = EpochReporter(sender.traffic)
        self._starter = Starter(self.parts, staleness, self.end_epoch)
        self._agreed = False

    @property
    def traffic(self) -> TrafficLedger:
        """Bytes sent so far, by layer and direction."""
        return self.parts.sender.traffic

    @property
    def epoch(self) -> int:
        """Epochs of training that have ended."""
        return self.parts.clock.epoch

    @property
    def last_epoch(self) -> EpochReport | None:
        """What the newest epoch that has ended did; None before the first ends."""
        return self._reporter.newest

    def extend(self, x: Tensor, *, layer: str, training: bool) -> Tensor:
        """Append the halo rows to a rank's inner rows: `start`, and wait.

        Returns:
            Inner rows, then halo rows by owner. [I + H, F], dtype of `x`
        """
        return self.start(x, layer=layer, training=training).extended()

    def start(self, x: Tensor, *, layer: str, training: bool) -> HaloRows:
        """Start the exchange of a rank's inner rows.

        Differentiable: the gradients of halo rows travel home and are added to their owners'.
        An input that needs no gradient, such as the features, does not change from step to step:
        its halo rows are fetched once, in full precision, and kept for as long as the same
        tensor, unmodified, is given.

        Args:
            x: Inner rows. [I, F], floating point
            layer: Stable name, the same on every rank. Collective: all ranks call for the same
                layers in the same order, forward and backward, also those without halo rows.
            training: Whether this is a training step; then the codec and the staleness rule are
                used. Otherwise, and under `torch.no_grad`, rows travel fresh and in full precision.

        Returns:
            The rows of this call. Compute with its `x`, and call `finish` or `extended` once.

        Raises:
            TypeError: `x` is not a dense tensor.
            ValueError: Wrong shape or dtype, an input that was made under `inference_mode` is given
                in training, or a peer sent what it should not have.
            FloatingPointError: Rows of some rank cannot be represented; raised on every rank.
            RuntimeError: Rows of the epoch before are too old.
            CommunicationError: A peer ended or was too slow.
        """
        check_rows(x, self.plan.num_inner)
        if not self._agreed:
            self.parts.agree_to_go_on()
            self._agreed = True
        return self._starter.start(x, layer, training=training)

    def fetched(self, x: Tensor, *, layer: str) -> Tensor | None:
        """Return the rows that are kept for a layer, or None where `x` is another input.

        Returns:
            Inner rows, then halo rows, [I + H, F]; or None.
        """
        return self.parts.inputs.find(x, layer)

    def end_epoch(self) -> None:
        """End a training epoch; `DistributedOptimizer(halo=...)` does so in `step()`.

        Without it, a forward pass that follows a backward pass begins the next epoch.

        Note:
            Collective in the epochs in which bits are planned, or a codec's trial ends.
        """
        parts = self.parts
        if not parts.clock.is_running:
            return
        epoch_s = parts.clock.elapsed_s()
        uses = parts.pipeline.end_epoch()
        self._reporter.end(self.epoch, uses)
        if parts.bits is not None:
            parts.bits.end_epoch(self.epoch, list(uses))
        if self.epoch >= self.staleness.settles_after:
            parts.formats.end_epoch(self.comm, epoch_s)
        parts.clock.end_epoch()

    def record_loss(self, loss: Tensor) -> None:
        """Tell the loss of this epoch, by which `DegreeBits(adapt=True)` chooses bits.

        Args:
            loss: This rank's share, as from `loss_share`; shares of all ranks are added. A scalar.

        Note:
            Collective where the option needs it: one allreduce of 8 bytes. Otherwise nothing.
        """
        if self.parts.bits is not None:
            self.parts.bits.record_loss(loss)

    def drain(self) -> None:
        """Wait for every exchange that is in flight, for instance at the end of training.

        Rows that arrive are kept: training may go on. All ranks call it at the same point.
        """
        self.parts.drain()

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold, of this rank: rows, epoch, plan of bits.

        Waits for what is in flight. Each rank saves its own, between two epochs; where backward has
        run and nobody has ended the epoch yet, this does.

        Raises:
            RuntimeError: A layer was called in this epoch, and backward has not run.
        """
        if self.parts.clock.is_over:
            self.end_epoch()
        if self.parts.clock.is_running:
            raise RuntimeError(
                "state_dict: expected to be called between two epochs, got a forward pass without "
                "its backward. Call it after step(), or halo.end_epoch() on all ranks first."
            )
        return self.parts.save()

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise a ValueError unless `load_state_dict` can take over a state."""
        self.parts.check(state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned. All ranks load before the next exchange.

        A rank's own state, of the same partition and options, is taken over whole; training goes
        on as if it had not stopped. Of any other, the epoch and what all ranks share is, and rows
        are exchanged anew.

        Raises:
            ValueError: It does not fit; nothing is changed then.
        """
        self.parts.check(state)
        self.parts.load(state)
        self._agreed = False

    def report(self) -> dict[str, float]:
        """Return what training has sent since the start, on this rank, by name."""
        traffic = self.traffic.total("forward", "backward")
        return {
            "halo_epochs": float(self.epoch),
            "halo_bytes_sent": float(traffic.bytes_sent),
            "halo_bytes_full_precision": float(traffic.bytes_full_precision),
        }
