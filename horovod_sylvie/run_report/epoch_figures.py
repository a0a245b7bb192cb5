"""One rank's figures of one epoch, and those of all ranks.

Shapes: P ranks, E epochs, C columns, L layers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from ..comm.agreement import require_agreement
from ..comm.protocol import Communicator
from .gradient_figures import GradientFigures
from .halo_figures import Entries, HaloFigures

# What is gathered of each rank and epoch: seconds in the epoch, bytes
COLUMNS: Final = (
    "seconds",
    "selecting_s",
    "encoding_s",
    "waiting_for_gradients_s",
    "waiting_for_rows_s",
    "decoding_s",
    "gradient_bytes_sent",
    "gradient_bytes_dense",
    "forward_bytes_sent",
    "forward_bytes_full_precision",
    "backward_bytes_sent",
    "backward_bytes_full_precision",
)


@dataclass(frozen=True)
class EpochFigures:
    """What a rank noted of an epoch.

    Attributes:
        epoch: Which.
        loss: Of the epoch; None where it was not told.
        accuracy: By name, from 0 to 1.
        scores: Other figures, by name.
        seconds: Of training; None where they were not told.
        num_steps: Of the optimizer; None where that is not known.
        gradients: None where there are none.
        halo: None where there are none.
    """

    epoch: int
    loss: float | None
    accuracy: Mapping[str, float]
    scores: Mapping[str, float]
    seconds: float | None
    num_steps: int | None
    gradients: GradientFigures | None
    halo: HaloFigures | None

    def row(self) -> list[float]:
        """Return this rank's columns; NaN where there is no such figure."""
        by_name = dict.fromkeys(COLUMNS, math.nan)
        if self.seconds is not None:
            by_name["seconds"] = self.seconds
        each = self.gradients
        if each is not None:
            steps = each.num_steps if self.num_steps is None else self.num_steps
            by_name["selecting_s"] = steps * each.selecting_s
            by_name["waiting_for_gradients_s"] = steps * each.waiting_s
            by_name["decoding_s"] = steps * each.decoding_s
            by_name["gradient_bytes_sent"] = each.bytes_sent
            by_name["gradient_bytes_dense"] = each.bytes_dense
        if self.halo is not None:
            by_name |= _halo_columns(self.halo, 0.0 if each is None else by_name["decoding_s"])
        return [by_name[name] for name in COLUMNS]


def _halo_columns(halo: HaloFigures, decoding_s: float) -> dict[str, float]:
    """Return the columns of halo rows, per epoch; decoding adds to that of gradients."""
    epochs, times = halo.num_epochs, halo.times
    columns = {
        "encoding_s": times.encoding_s / epochs,
        "waiting_for_rows_s": times.waiting_s / epochs,
        "decoding_s": decoding_s + times.decoding_s / epochs,
    }
    for name, traffic in (("forward", halo.forward), ("backward", halo.backward)):
        columns[f"{name}_bytes_sent"] = traffic.bytes_sent / epochs
        columns[f"{name}_bytes_full_precision"] = traffic.bytes_full_precision / epochs
    return columns


@dataclass(frozen=True)
class Gathered:
    """Figures of all ranks, the same on each.

    Attributes:
        columns: By rank, epoch and column; NaN where there is no such figure. [P, E, C], float64
        layers: Halo bytes sent and those of full precision, summed over ranks, by layer and
            direction. [L, 2], float64
    """

    columns: Tensor
    layers: Tensor


def gather(comm: Communicator, epochs: Sequence[EpochFigures], entries: Entries) -> Gathered:
    """Collect the figures of all ranks.

    Args:
        comm: The communicator. Collective: all ranks call after the same epochs.
        epochs: This rank's.
        entries: This rank's halo traffic.

    Raises:
        PeerError: The ranks noted different epochs, or different kinds of figures.

    Note:
        Messages: 2 to check that, 96 E bytes per rank, and 16 L bytes that are added up.
    """
    rows = torch.tensor([each.row() for each in epochs], dtype=torch.float64)
    rows = rows.reshape(len(epochs), len(COLUMNS))
    kinds = [(each.epoch, *(math.isnan(value) for value in each.row())) for each in epochs]
    digest = hashlib.blake2b(f"{kinds} {list(entries)}".encode(), digest_size=8).hexdigest()
    require_agreement(
        comm,
        "epochs of the run report",
        f"{len(epochs)} epochs, figures {digest}",
        advice="Call add_epoch on every rank in every epoch, with the same kinds of figures.",
    )
    layers = torch.tensor(
        [(each.bytes_sent, each.bytes_full_precision) for each in entries.values()],
        dtype=torch.float64,
    ).reshape(len(entries), 2)
    columns = rows.expand(comm.size, *rows.shape)
    if epochs:
        columns = comm.allgather(rows[None], name="run_report.epochs").wait()
    if entries:
        layers = comm.allreduce(layers, name="run_report.layers").wait()
    return Gathered(columns, layers)
