"""Which format the rows of an exchange take.

Gradients never take the biased form of a codec, and evaluation is in full precision.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from ..comm.protocol import Communicator
from .automatic import Automatic, Trial
from .bit_planner import BitPlanner
from .codec import Codec, FullPrecision
from .delta import Delta
from .delta_format import DeltaStream
from .epoch_clock import layer_of
from .format import CodecFormat, Format
from .plan import HaloPlan, Route
from .traffic import Direction

logger = logging.getLogger(__name__)

FULL_PRECISION: Final = FullPrecision()


class Formats:
    """The formats of one rank.

    Args:
        plan: Who sends which rows to whom.
        codec: How features travel in training, as it was given.
        bits: Plans how many bits each row gets; None where all get the codec's.

    Attributes:
        streams: What is kept of features that travel as changes, by slot.
        saved: States of streams from a checkpoint, by slot, until they are made.
        trial: Where the trial of an automatic codec stands; None where there is none.
        products: Elements of an input row, by name of each layer whose products travel instead.
    """

    def __init__(
        self, plan: HaloPlan, codec: Codec | Delta | Automatic, bits: BitPlanner | None
    ) -> None:
        self.streams: dict[str, DeltaStream] = {}
        self.trial = Trial(codec) if isinstance(codec, Automatic) else None
        self.products: dict[str, int] = {}
        self._plan = plan
        self._codec = codec
        self._bits = bits
        self.saved: dict[str, Mapping[str, Tensor | int]] = {}
        self._kinds: dict[str, tuple[int, torch.dtype]] = {}
        self._cache: dict[tuple[Codec, bool, int, torch.dtype], CodecFormat] = {}

    def prefer_products(self, num_inputs: int, num_products: int) -> bool:
        """Return whether rows times a weight should travel instead of rows.

        Where bits are planned row by row, and where changes travel, rows do.

        Args:
            num_inputs: Elements of a row.
            num_products: Elements of a row times the weight.
        """
        codec = self._codec.codec if isinstance(self._codec, Automatic) else self._codec
        if self._bits is not None or isinstance(codec, Delta):
            return False
        return codec.for_products(num_inputs, num_products) is not None

    def of(self, rows: Tensor, slot: str, direction: Direction) -> Format:
        """Return the format of the next training exchange.

        Args:
            rows: What is sent, or picked from. [N, F]
            slot: The layer's call.
            direction: "forward" or "backward".

        Returns:
            The format; for this exchange only.
        """
        num_features, dtype = rows.shape[1], rows.dtype
        is_backward = direction == "backward"
        route = self._plan.route(direction)
        if self._bits is not None:
            mixed = self._bits.format(rows, slot, direction)
            if mixed is not None:
                return mixed
        if isinstance(self._codec, Delta) and not is_backward:
            return self._stream(self._codec, route, slot, num_features, dtype).format()
        codec = self._trained_codec()
        num_inputs = self.products.get(layer_of(slot))
        if num_inputs is not None and isinstance(codec, Codec):
            codec = codec.for_products(num_inputs, num_features) or codec
        if is_backward:
            codec = codec.for_gradients()
        assert isinstance(codec, Codec), "features that travel as changes have a stream"
        return self.by_codec(codec, route, num_features, dtype)

    def by_codec(
        self, codec: Codec, route: Route, num_features: int, dtype: torch.dtype
    ) -> CodecFormat:
        """Return the format of a codec; formats hold layouts and are kept.

        Args:
            codec: How each row travels.
            route: One of the plan's.
            num_features: Elements of a row, F.
            dtype: Of the rows.
        """
        key = (codec, route is self._plan.backward, num_features, dtype)
        if key not in self._cache:
            self._cache[key] = CodecFormat(codec, route, num_features=num_features, dtype=dtype)
        return self._cache[key]

    def end_epoch(self, comm: Communicator, epoch_s: float) -> None:
        """Count an epoch of a codec's trial, and decide where it is complete.

        Not called before old rows are used as often as later on: both halves of the trial wait
        alike then.

        Args:
            comm: The communicator.
            epoch_s: What the epoch took on this rank, in seconds.

        Note:
            Collective in the epoch in which the trial is complete: one allreduce of 16 bytes.
        """
        if self.trial is None or self.trial.chosen is not None:
            return
        trial = self.trial.after(epoch_s)
        if trial.is_complete:
            times_s = torch.tensor(trial.medians_s, dtype=torch.float64)
            total_s = comm.allreduce(times_s, name="sylvie.halo.trial").wait()
            full_s, codec_s = (float(each) / comm.size for each in total_s)
            trial = trial.decided(full_s, codec_s)
            if comm.rank == 0:
                logger.info(
                    "an epoch takes %.3f s in full precision and %.3f s with %s: %s from here on",
                    full_s,
                    codec_s,
                    trial.options.codec,
                    trial.options.codec if trial.chosen else FULL_PRECISION,
                )
        self.trial = trial

    def clear(self) -> None:
        """Forget what is kept of rows that were sent."""
        self.streams.clear()
        self.saved.clear()

    def _stream(
        self, delta: Delta, route: Route, slot: str, num_features: int, dtype: torch.dtype
    ) -> DeltaStream:
        kind = (num_features, dtype)
        if slot not in self.streams or self._kinds[slot] != kind:
            stream = DeltaStream(delta, route, num_features=num_features, dtype=dtype)
            if slot in self.saved:
                stream.load(self.saved.pop(slot))
            self.streams[slot], self._kinds[slot] = stream, kind
        return self.streams[slot]

    def _trained_codec(self) -> Codec | Delta:
        if self.trial is not None:
            return self.trial.options.codec if self.trial.uses_codec else FULL_PRECISION
        assert not isinstance(self._codec, Automatic), "it has a trial"
        return self._codec
