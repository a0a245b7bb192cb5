"""What a checkpoint holds of the halo exchanges of one rank, and how ranks go on from it.

Rows that were kept belong to one rank of one partition. On the same ranks, training goes on as if
it had never stopped, to the bit; on others, after partitioning again, the epoch and what all ranks
share go on, and rows are exchanged anew.

The state is made of tensors, numbers and texts only, so `torch.load(weights_only=True)` reads it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from ..comm.agreement import gather_bytes
from ..comm.protocol import Communicator
from .automatic import Trial
from .bit_planner import BitPlanner
from .bit_tables import BitTables
from .epoch_clock import EpochClock
from .fetched_input import FetchedInputs
from .formats import Formats
from .loss_trend import LossTrend
from .pipeline import Kept, Pipeline
from .plan import HaloPlan
from .traffic import Direction
from .transfer import Sender

_VERSION: Final = 1
_FIELDS: Final = frozenset(
    {"version", "rank", "num_ranks", "digest", "options", "shared", "steps", "kept", "sent"}
    | {"streams", "bits_version", "bits", "times_s", "num_trials"}
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class HaloParts:
    """The parts of one rank's halo exchange that change from epoch to epoch.

    Attributes:
        comm: The communicator.
        plan: Who sends which rows to whom.
        options: What all ranks agreed on, in one line.
        clock: Which epoch it is.
        sender: Numbers the exchanges.
        formats: How rows stand in messages.
        pipeline: What is kept and in flight.
        inputs: What was fetched once.
        bits: The plan of bits, or None.
    """

    comm: Communicator
    plan: HaloPlan
    options: str
    clock: EpochClock
    sender: Sender
    formats: Formats
    pipeline: Pipeline
    inputs: FetchedInputs
    bits: BitPlanner | None

    def save(self) -> dict[str, Any]:
        """Return this rank's state. Waits for what is in flight."""
        self.pipeline.drain()
        trial, bits = self.formats.trial, self.bits
        return {
            "version": _VERSION,
            "rank": self.comm.rank,
            "num_ranks": self.comm.size,
            "digest": self.plan.digest,
            "options": self.options,
            "shared": self._shared(),
            "steps": dict(self.sender.steps),
            "kept": {
                _text(key): {"epoch": kept.epoch, "drift": kept.drift, "rows": kept.rows}
                for key, kept in self.pipeline.kept.items()
            },
            "sent": dict(self.pipeline.drifts.rows),
            "streams": {slot: each.state() for slot, each in self.formats.streams.items()}
            | self.formats.saved,
            "bits_version": 0 if bits is None else bits.version,
            "bits": {
                _text(key): {"version": each.version, "sent": each.sent, "received": each.received}
                for key, each in ({} if bits is None else bits.tables).items()
            },
            "times_s": [] if trial is None else list(trial.times_s),
            "num_trials": 0 if trial is None else trial.num_epochs,
        }

    def check(self, state: Mapping[str, Any]) -> None:
        """Raise a ValueError unless `load` can take over a state; nothing is changed."""
        missing = _FIELDS - set(state)
        if missing or state["version"] != _VERSION:
            raise ValueError(
                f"load_state_dict: expected version {_VERSION} of the halo state, got "
                f"{state.get('version')!r} without {sorted(missing)}. It was saved by another "
                "release."
            )
        if not self._owns(state):
            return
        num_rows = {
            "forward": (self.plan.forward.num_unique, self.plan.num_halo),
            "backward": (self.plan.num_halo, len(self.plan.send_index)),
        }
        for text, entry in state["kept"].items():
            _check_rows(text, entry["rows"], num_rows[_key(text)[1]][1], dimensions=2)
        for name, rows in state["sent"].items():
            direction = _key(name.replace(".", "|"))[1]
            _check_rows(name, rows, num_rows[direction][0], dimensions=2)
        for text, entry in state["bits"].items():
            sent, received = num_rows[_key(text)[1]]
            _check_rows(text, entry["sent"], sent, dimensions=1)
            _check_rows(text, entry["received"], received, dimensions=1)

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over a state that was checked. All ranks load before their next exchange.

        Args:
            state: From `save`. What is in flight is awaited and forgotten.
        """
        self._forget_rows()
        self._share(state["shared"])
        if not self._owns(state):
            return
        if self.formats.trial is not None:
            times_s = tuple(float(each) for each in state["times_s"])
            self.formats.trial = replace(
                self.formats.trial, times_s=times_s, num_epochs=int(state["num_trials"])
            )
        device = self.plan.send_index.device
        self.sender.steps.update(state["steps"])
        for text, entry in state["kept"].items():
            rows = entry["rows"].to(device, copy=True)
            self.pipeline.kept[_key(text)] = Kept(entry["epoch"], rows, drift=entry["drift"])
        for name, rows in state["sent"].items():
            self.pipeline.drifts.rows[name] = rows.to(device, copy=True)
        self.formats.saved.update(state["streams"])
        if self.bits is not None:
            tables = {
                _key(text): BitTables(
                    each["version"], each["sent"].to(device), each["received"].to(device)
                )
                for text, each in state["bits"].items()
            }
            self.bits.load(int(state["bits_version"]), tables, self.clock.epoch)

    def agree_to_go_on(self) -> None:
        """Let all ranks go on from the same epoch, with their rows or without. Collective.

        Where some ranks loaded what fits them and others did not, all forget their rows, and go on
        with what the one that is furthest shares.
        """
        own = {"shared": self._shared(), "has_rows": bool(self.sender.steps)}
        everyone = [
            json.loads(text.decode())
            for text in gather_bytes(self.comm, json.dumps(own).encode(), name="sylvie.halo.go_on")
        ]
        if all(each == everyone[0] for each in everyone):
            return
        self._forget_rows()
        furthest = max(everyone, key=lambda each: int(each["shared"]["epoch"]))  # the first of them
        self._share(furthest["shared"])
        if self.comm.rank == 0:
            logger.warning(
                "not every rank has loaded its own halo state: all exchange their rows anew. Save "
                "one file per rank, and load it on the same rank."
            )

    def _shared(self) -> dict[str, Any]:
        """Return what is the same on every rank, and useful on any number of them."""
        trial = self.formats.trial
        trend = None if self.bits is None else self.bits.trend
        return {
            "epoch": self.clock.epoch,
            "trend": [] if trend is None else list(trend.to_numbers()),
            "chosen": None if trial is None else trial.chosen,
        }

    def _share(self, shared: Mapping[str, Any]) -> None:
        self.clock.resume_at(int(shared["epoch"]))
        if self.bits is not None and self.bits.trend is not None and shared["trend"]:
            self.bits.trend = LossTrend.from_numbers(shared["trend"])
        if self.formats.trial is not None:  # one that is not decided begins anew
            options, chosen = self.formats.trial.options, shared["chosen"]
            self.formats.trial = Trial(options, chosen=None if chosen is None else bool(chosen))

    def _owns(self, state: Mapping[str, Any]) -> bool:
        """Return whether a state is of this rank, partition and options: its rows can be used."""
        saved = (state["rank"], state["num_ranks"], state["digest"], state["options"])
        return bool(saved == (self.comm.rank, self.comm.size, self.plan.digest, self.options))

    def _forget_rows(self) -> None:
        """Forget everything that belongs to one rank's exchanges so far."""
        self.pipeline.drain()
        self.pipeline.kept.clear()
        self.pipeline.drifts.rows.clear()
        self.sender.steps.clear()
        self.formats.clear()
        self.inputs.clear()
        if self.bits is not None:
            self.bits.load(0, {}, self.clock.epoch)


def _check_rows(name: str, rows: Any, num_rows: int, *, dimensions: int) -> None:
    fits = isinstance(rows, Tensor) and rows.dim() == dimensions and len(rows) == num_rows
    if fits and bool(torch.isfinite(rows).all()):
        return
    got = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
    raise ValueError(
        f"load_state_dict: expected {num_rows} finite rows for '{name}' of the halo state, got "
        f"{got}. The file is damaged, or of another partition."
    )


def _text(key: tuple[str, Direction]) -> str:
    return "|".join(key)


def _key(text: str) -> tuple[str, Direction]:
    slot, _, direction = text.rpartition("|")
    return slot, "backward" if direction == "backward" else "forward"
