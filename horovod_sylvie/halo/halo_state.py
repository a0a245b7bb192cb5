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

from ..comm.agreement import gather_bytes
from ..comm.protocol import Communicator
from .automatic import Trial
from .bit_planner import BitPlanner
from .bit_tables import BitTables
from .epoch_clock import EpochClock
from .fetched_input import FetchedInputs
from .formats import Formats
from .halo_state_checks import check_kinds, check_tensors, key_of, text_of
from .loss_trend import LossTrend
from .pipeline import Kept, Pipeline
from .plan import HaloPlan
from .transfer import Sender

VERSION: Final = 1

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

    def drain(self) -> None:
        """Wait for whatever is in flight; rows that arrive are kept."""
        self.pipeline.drain()
        if self.bits is not None:
            self.bits.drain()

    def save(self) -> dict[str, Any]:
        """Return this rank's state, as copies. Waits for what is in flight."""
        self.drain()
        trial, bits = self.formats.trial, self.bits
        return {
            "version": VERSION,
            "rank": self.comm.rank,
            "num_ranks": self.comm.size,
            "digest": self.plan.digest,
            "options": self.options,
            "shared": self._shared(),
            "steps": dict(self.sender.steps),
            "kept": {
                text_of(key): {"epoch": kept.epoch, "drift": kept.drift, "rows": kept.rows.clone()}
                for key, kept in self.pipeline.kept.items()
            },
            "sent": {name: rows.clone() for name, rows in self.pipeline.drifts.rows.items()},
            "streams": {slot: each.state() for slot, each in self.formats.streams.items()}
            | self.formats.saved,
            "bits_version": 0 if bits is None else bits.version,
            "bits": {
                text_of(key): {
                    "version": each.version,
                    "sent": each.sent,
                    "received": each.received,
                }
                for key, each in ({} if bits is None else bits.tables).items()
            },
            "times_s": [] if trial is None else list(trial.times_s),
            "num_trials": 0 if trial is None else trial.num_epochs,
        }

    def check(self, state: Mapping[str, Any]) -> None:
        """Raise a ValueError unless `load` can take over a state; nothing is changed."""
        check_kinds(state, version=VERSION)
        if self._owns(state):
            check_tensors(state, self.plan)

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
            self.pipeline.kept[key_of(text)] = Kept(entry["epoch"], rows, drift=entry["drift"])
        for name, rows in state["sent"].items():
            self.pipeline.drifts.rows[name] = rows.to(device, copy=True)
        self.formats.saved.update(state["streams"])
        if self.bits is not None:
            tables = {
                key_of(text): BitTables(
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
            "bits": self._bits_text(),
            "codec": self._trial_text(),
            "trend": [] if trend is None else list(trend.to_numbers()),
            "chosen": None if trial is None else trial.chosen,
        }

    def _share(self, shared: Mapping[str, Any]) -> None:
        """Take over what others shared, where it is about the same options as here."""
        self.clock.resume_at(int(shared["epoch"]))
        same_bits = shared["bits"] == self._bits_text()
        if same_bits and self.bits is not None and self.bits.trend is not None and shared["trend"]:
            self.bits.trend = LossTrend.from_numbers(shared["trend"])
        if self.formats.trial is not None:  # one that is not decided begins anew
            chosen = shared["chosen"] if shared["codec"] == self._trial_text() else None
            self.formats.trial = Trial(self.formats.trial.options, chosen=chosen)

    def _bits_text(self) -> str:
        return "" if self.bits is None else self.bits.options_text

    def _trial_text(self) -> str:
        """Return what a trial's outcome is about: the link between so many ranks, too."""
        trial = self.formats.trial
        return "" if trial is None else f"{trial.options} on {self.comm.size} ranks"

    def _owns(self, state: Mapping[str, Any]) -> bool:
        """Return whether a state is of this rank, partition and options: its rows can be used."""
        saved = (state["rank"], state["num_ranks"], state["digest"], state["options"])
        return bool(saved == (self.comm.rank, self.comm.size, self.plan.digest, self.options))

    def _forget_rows(self) -> None:
        """Forget everything that belongs to one rank's exchanges so far."""
        self.drain()
        self.pipeline.kept.clear()
        self.pipeline.drifts.rows.clear()
        self.sender.steps.clear()
        self.formats.clear()
        self.inputs.clear()
        if self.bits is not None:
            self.bits.load(0, {}, self.clock.epoch)
