"""What the options of `full_graph.py` stand for: how halo rows and gradients travel."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import horovod_sylvie as hvs


def make_codec(args: Namespace) -> hvs.Codec | hvs.Delta | hvs.Automatic:
    """Return how halo rows are encoded in training."""
    codec: hvs.Codec
    if args.codec == "full":
        codec = hvs.FullPrecision()
    elif args.codec == "half":
        codec = hvs.Half()
    elif args.codec in {"1", "auto"}:
        codec = hvs.OneBit(args.code)
    else:
        codec = hvs.Bits(int(args.codec))
    if args.codec == "auto":
        return hvs.Automatic(codec)
    return hvs.Delta(codec, args.refresh_every) if args.delta else codec


def make_staleness(args: Namespace) -> hvs.Staleness:
    """Return when layers compute with the halo rows of the epoch before."""
    if args.staleness == "pipelined":
        return hvs.Pipelined(args.sync_every, args.warmup, args.start)
    if args.staleness == "bounded":
        return hvs.BoundedStaleness(args.max_drift, args.warmup)
    return hvs.Synchronous()


def make_bits(args: Namespace) -> hvs.BudgetBits | hvs.DegreeBits | None:
    """Return how the bits of each row are chosen; None where all get the codec's."""
    if args.bits_policy == "budget":
        return hvs.BudgetBits(args.budget)
    if args.bits_policy == "degree":
        return hvs.DegreeBits(args.base_bit, adapt=args.adapt_base)
    return None


def make_compression(args: Namespace) -> Any:
    """Return how gradients of weights travel."""
    if args.compression == "topk":
        return hvs.Compression.topk(args.density, min_elements=args.min_elements)
    if args.compression == "lags":
        least = min(args.density, hvs.Compression.lags().min_density)
        return hvs.Compression.lags(least, args.density, min_elements=args.min_elements)
    return hvs.Compression.none
