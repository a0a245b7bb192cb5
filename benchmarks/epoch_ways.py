"""The ways of halo exchange that `epoch.py` compares."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from horovod_sylvie.halo.halo_rows import HaloRows

NO_EXCHANGE: Final = "no exchange"
FULL_PRECISION: Final = "full precision"
_LEARNING_RATE: Final = 0.01

PLAIN: Final = "plain full precision"

_TOP_K: Final = hvs.Compression.topk(density=0.01)

# Codec and staleness rule of halo rows, compression of weight gradients
_OPTIONS: Final[Mapping[str, tuple[Any, Any, Any]]] = MappingProxyType(
    {
        PLAIN: (hvs.FullPrecision(), hvs.Synchronous(), hvs.Compression.none),
        FULL_PRECISION: (hvs.FullPrecision(), hvs.Synchronous(), hvs.Compression.none),
        "half precision": (hvs.Half(), hvs.Synchronous(), hvs.Compression.none),
        "one bit": (hvs.OneBit(), hvs.Synchronous(), hvs.Compression.none),
        "one bit pipelined": (hvs.OneBit(), hvs.Pipelined(), hvs.Compression.none),
        "one bit bounded": (hvs.OneBit(), hvs.BoundedStaleness(0.3), hvs.Compression.none),
        "automatic": (hvs.Automatic(hvs.OneBit()), hvs.Synchronous(), hvs.Compression.none),
        "one bit with top-k": (hvs.OneBit(), hvs.Synchronous(), _TOP_K),
        "pipelined with top-k": (hvs.OneBit(), hvs.Pipelined(), _TOP_K),
    }
)
WAYS: Final = (NO_EXCHANGE, *_OPTIONS)


class NoExchange(hvs.HaloExchange):
    """Gives zeros for halo rows, and keeps their gradients; features are fetched once all the same.

    So it computes what the others compute, and no epoch communicates.
    """

    def __init__(self, part: hvs.Partition, comm: hvs.Communicator) -> None:
        super().__init__(part, hvs.FullPrecision(), comm=comm)

    def start(self, x: Tensor, *, layer: str, training: bool) -> HaloRows:
        """See `HaloExchange.start`."""
        if not x.requires_grad:
            return super().start(x, layer=layer, training=training)
        halo_rows = x.new_zeros((self.plan.num_halo, x.shape[1]))
        return HaloRows(x, lambda: halo_rows, is_ready=True)


def make_halo(way: str, part: hvs.Partition, comm: hvs.Communicator) -> hvs.HaloExchange:
    """Make the halo exchange of a way. Collective.

    Args:
        way: One of `WAYS`.
        part: This rank's partition.
        comm: Of all ranks.

    Raises:
        ValueError: If there is no such way.
    """
    if way == NO_EXCHANGE:
        return NoExchange(part, comm)
    if way not in _OPTIONS:
        raise ValueError(f"make_halo: expected one of {WAYS} for 'way', got {way!r}.")
    codec, staleness, _ = _OPTIONS[way]
    ours = way != PLAIN  # else layers wait for all rows, of their input, as is usual
    return hvs.HaloExchange(
        part, codec, staleness=staleness, overlap=ours, smaller_side=ours, comm=comm
    )


def make_optimizer(way: str, model: nn.Module, halo: hvs.HaloExchange) -> Any:
    """Make an optimizer that sums gradients over ranks, but for the way without exchange.

    Args:
        way: One of `WAYS`.
        model: Its parameters have other names than those of other ways.
        halo: The way's halo exchange.
    """
    plain = torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE)
    if way == NO_EXCHANGE:
        return plain
    return hvs.DistributedOptimizer(
        plain,
        named_parameters=model.named_parameters(),
        compression=_OPTIONS[way][2],
        op="Sum",
        halo=None if way == PLAIN else halo,
        comm=halo.comm,
    )
