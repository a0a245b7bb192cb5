"""A report of a run: figures epoch by epoch, then one page and one file of all of them."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from ..comm.agreement import together
from ..comm.horovod import HorovodCommunicator
from ..comm.protocol import Communicator
from .arguments import (
    checked_accuracy,
    checked_directory,
    checked_epoch,
    checked_number,
    checked_options,
    checked_scores,
    checked_seconds,
    checked_steps,
    checked_title,
)
from .document import Heading, make_document
from .epoch_figures import EpochFigures, gather
from .files import FIGURES, PAGE, prepare_directory, write_files
from .gradient_figures import GradientReader
from .halo_figures import HaloReader
from .page import make_page

_PACKAGES: Final = ("horovod_sylvie", "torch", "horovod", "torch_geometric")


class RunReport:
    """Notes what each epoch of a run did, and writes a page about it.

    The page needs no network, no other file and no program: its charts are inline SVG. All its
    figures are in a JSON file beside it. It tells loss and scores, bytes by layer against dense and
    full precision, how the time was spent, densities and bits, which exchanges used old rows, and
    drift; what was not told is left out.

    Attributes:
        directory: Where it is written, by rank 0: `report.html` and `report.json`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        comm: Communicator | None = None,
        title: str = "Training run",
        options: Mapping[str, object] | None = None,
    ) -> None:
        """Make the directory, and find out before anything is trained whether it can be written.

        Args:
            directory: Made by rank 0, with those above it. A report that is there is replaced.
            comm: The communicator; Horovod's world by default.
            title: Of the page.
            options: Of the program, as in `vars(args)`: listed on the page. Rank 0's.

        Raises:
            TypeError: An argument is of the wrong kind.
            OSError: Rank 0 cannot write there.
            PeerError: Any of this on another rank.

        Note:
            Collective: all ranks construct together.
        """
        self._comm = HorovodCommunicator() if comm is None else comm
        with together(self._comm, "preparing the run report"):
            self.directory = checked_directory(directory)
            self._title = checked_title(title)
            self._options = checked_options(options)
            if self._comm.rank == 0:
                prepare_directory(self.directory)
        self._epochs: list[EpochFigures] = []
        self._gradients = GradientReader(self._comm.size)
        self._halo = HaloReader()

    def add_epoch(
        self,
        *,
        loss: Any = None,
        accuracy: float | Mapping[str, float] | None = None,
        scores: Mapping[str, float] | None = None,
        seconds: float | None = None,
        steps: int | None = None,
        optimizer: Any = None,
        halo: Any = None,
        epoch: int | None = None,
    ) -> None:
        """Note an epoch that has ended.

        Args:
            loss: Of all ranks; rank 0's is shown. NaN and infinity are fine. A number, or a tensor
                of one element.
            accuracy: From 0 to 1, one or some by name, of all ranks; rank 0's is shown. Leave it
                out where it was not measured.
            scores: Other figures by name, such as a perplexity.
            seconds: That training took this rank, without evaluation. Without them the page cannot
                tell how much of the time is computing.
            steps: Of the optimizer in this epoch. Where a plan has changed meanwhile, its costs
                are of the steps since then; with this they are scaled up to the whole epoch.
            optimizer: Of `hvs.DistributedOptimizer`: its telemetry is read.
            halo: The `hvs.HaloExchange`: its traffic and its newest epoch are read. An epoch of it
                ends in `optimizer.step()` where the optimizer was given it, else in
                `halo.end_epoch()`.
            epoch: Its number; by default the next.

        Raises:
            TypeError: An argument is of the wrong kind.
            ValueError: An argument is out of its range.

        Note:
            Not collective: nothing is sent before `write`. All ranks call it in the same epochs.
        """
        figures = EpochFigures(
            epoch=checked_epoch(epoch, self._epochs[-1].epoch if self._epochs else None),
            loss=None if loss is None else checked_number("loss", loss),
            accuracy=checked_accuracy(accuracy),
            scores=checked_scores("scores", scores),
            seconds=None if seconds is None else checked_seconds(seconds),
            num_steps=None if steps is None else checked_steps(steps),
            gradients=None if optimizer is None else self._gradients.read(optimizer),
            halo=None if halo is None else self._halo.read(halo),
        )
        self._epochs.append(figures)

    def write(self) -> Path:
        """Gather the figures of all ranks, and write page and file; rank 0 does.

        Bytes of halo rows are summed over ranks; bytes of gradients and times are means.

        Returns:
            The page's path, on every rank.

        Raises:
            OSError: Rank 0 cannot write.
            PeerError: The ranks noted different epochs, or rank 0 cannot write.

        Note:
            Collective: all ranks call, after the same epochs. Call it as often as you like, for
            instance in every tenth epoch: a report that is there is replaced, whole or not at all.
        """
        gathered = gather(self._comm, self._epochs, self._halo.entries)
        with together(self._comm, "writing the run report"):
            if self._comm.rank == 0:
                document = make_document(
                    Heading(self._title, _now(), self._options, _versions()),
                    self._epochs,
                    gathered,
                    self._gradients,
                    self._halo,
                )
                figures = json.dumps(document, indent=1, allow_nan=False)
                page = make_page(document, figures_file=FIGURES)
                write_files(self.directory, {FIGURES: f"{figures}\n", PAGE: page})
        return self.directory / PAGE


def _now() -> str:
    return datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")


def _versions() -> dict[str, str]:
    """Return the versions of what is installed, without importing any of it."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions
