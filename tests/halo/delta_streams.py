"""Streams of one rank whose messages come back to it, and what the tests of changes share."""

from __future__ import annotations

import torch
from torch import Tensor

from horovod_sylvie.halo.codec import FullPrecision, Half
from horovod_sylvie.halo.delta import Delta
from horovod_sylvie.halo.delta_copies import Copies
from horovod_sylvie.halo.delta_format import DeltaStream
from horovod_sylvie.halo.packed_codec import Bits, OneBit
from horovod_sylvie.halo.plan import Route

CENTROID = OneBit("centroid")
EVERY = (FullPrecision(), Half(), Half(torch.bfloat16), CENTROID, Bits(4), Bits(8))
REFRESH = 0x0500


def stream_of(
    delta: Delta, picked: list[int], num_features: int, dtype: torch.dtype = torch.float32
) -> DeltaStream:
    """Make rank 0 of two, for exchanges where what it sends to rank 1 comes back as it is."""
    unique, expand = torch.unique(torch.tensor(picked, dtype=torch.int64), return_inverse=True)
    splits = (0, len(picked))
    route = Route(0, unique, expand, splits, splits)
    return DeltaStream(delta, route, num_features=num_features, dtype=dtype)


def exchange(stream: DeltaStream, rows: Tensor, key: int = 0) -> Tensor:
    """Make one exchange, and return the rows that arrive. [n, F]."""
    format_ = stream.format()
    messages, nonfinite = format_.encode(rows, key)
    assert not nonfinite
    out = rows.new_full((sum(stream.route.recv_splits), rows.shape[1]), 77.0)
    format_.decode(messages, out)
    return out


def copies_of(stream: DeltaStream) -> Copies:
    assert stream.copies is not None
    return stream.copies


def random_rows(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
