"""What collectives take between these ranks, measured: by probes, and by exchanges of a step.

A probe is a collective of a known size between two steps, with all ranks in step before it. All
ranks keep the same samples, those that were gathered from all, so that all come to the same model
and ask for the same probes. Where probes take much longer, or shorter, than before they are
repeated at once; if they still do, the link has changed, and what is older is forgotten.

Shapes: P ranks.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from statistics import median
from typing import Any, Final, Literal, NamedTuple

import torch

from ..comm.agreement import gather_bytes
from ..comm.protocol import Communicator, Handle
from ..planning.link_model import LinkModel, fit_cost

Collective = Literal["allreduce", "allgather", "alltoall"]
Sample = tuple[Collective, int, float]  # which, bytes that a rank handed over, seconds
Probe = tuple[Collective, int, float, float]  # and seconds of cores, without those of the caller


class Seen(NamedTuple):
    """An exchange of one step, as this rank saw it.

    Attributes:
        collective: Which.
        nbytes: That a rank handed over.
        submitted_s: When, by any clock.
        completed_s: When it had come; None where it was there before this rank looked.
    """

    collective: Collective
    nbytes: int
    submitted_s: float
    completed_s: float | None


def sample_of(exchanges: Sequence[Seen]) -> Sample | None:
    """Return what the last exchanges of a step took together, if that can be told.

    Horovod sends neighbours of one kind as one message, and then copies out of it one after the
    other. So only their sum means something, and only behind an exchange of another kind: after its
    end the link was theirs, if they were submitted by then.

    Args:
        exchanges: All of the step, in the order in which they were waited for.
    """
    if any(each.completed_s is None for each in exchanges[-2:]) or not exchanges:
        return None
    kind = exchanges[-1].collective
    tail = list(takewhile(lambda each: each.collective == kind, reversed(exchanges)))
    if len(tail) == len(exchanges):
        return None
    began_s, ended_s = exchanges[-len(tail) - 1].completed_s, exchanges[-1].completed_s
    if began_s is None or ended_s is None or any(each.submitted_s > began_s for each in tail):
        return None
    return kind, sum(each.nbytes for each in tail), ended_s - began_s


COLLECTIVES: Final[tuple[Collective, ...]] = ("allreduce", "allgather", "alltoall")
_SMALL: Final = 1 << 10
_LARGE: Final = (1 << 16, 1 << 18, 1 << 20, 1 << 22)
# A size is large enough to tell a rate where a collective takes so much longer than the smallest
# one; another, four times as large, is not tried with it
_LONG_S: Final = 0.03
# Later probes are as small as tells a change of the rate from a start that takes longer: training
# waits for them, and the link may have become much slower
_LARGEST_PROBE: Final = 1 << 20
_CALIBRATION_ROUNDS: Final = 3
_SECOND_LOOK_ROUNDS: Final = 2
_KEPT: Final = 5
# A probe that takes so many times more, or less, than before asks for a second look
_CHANGE: Final = 1.5


class LinkSamples:
    """The newest samples of each collective and size; the same on every rank.

    Args:
        comm: The communicator.
        device: Where payloads are.
    """

    def __init__(self, comm: Communicator, device: torch.device) -> None:
        self._comm = comm
        self._device = device
        self._times: dict[tuple[Collective, int], deque[float]] = {}
        self._cores: dict[tuple[Collective, int], deque[float]] = {}
        self._seen: dict[Collective, tuple[int, float]] = {}  # the newest exchange of each

    def calibrate(self) -> None:
        """Forget all samples, and probe sizes, from small to large, until one tells the rate.

        Note:
            Collective. Mostly below half a second.
        """
        self._times.clear()
        self._cores.clear()
        self._seen.clear()
        short = COLLECTIVES
        for nbytes in (_SMALL, *_LARGE):
            self._add(self._probe([nbytes] * _CALIBRATION_ROUNDS, short))
            short = tuple(each for each in short if self._beyond_start_s(each, nbytes) < _LONG_S)

    def probe(self) -> None:
        """Probe again, and calibrate anew where the link has changed.

        Note:
            Collective.
        """
        large = self._probe_size()
        found = self._probe([_SMALL, large])
        if self._differs(found, large):
            found = self._probe([_SMALL, large] * _SECOND_LOOK_ROUNDS)
            if self._differs(found, large):
                self.calibrate()
                return
        self._add(found)

    def observe(self, samples: Sequence[Sample]) -> None:
        """Take what exchanges of the last steps took, by the rank that waited least for each.

        Args:
            samples: This rank's, at most one for each collective and size.

        Note:
            Collective.
        """
        gathered = _gather(self._comm, samples, name="sylvie.link.exchanges")
        least: dict[tuple[Collective, int], float] = {}
        for rank in gathered:
            for collective, nbytes, seconds in rank:
                key = (collective, nbytes)
                least[key] = min(seconds, least.get(key, seconds))
        self._seen |= {kind: (nbytes, seconds) for (kind, nbytes), seconds in least.items()}

    def model(self) -> LinkModel:
        """Return the line through the samples of each collective."""
        costs = {}
        for wanted in COLLECTIVES:
            samples = [
                (float(nbytes), seconds)
                for (collective, nbytes), times in self._times.items()
                if collective == wanted
                for seconds in times
            ]
            if wanted in self._seen:
                samples.append(self._seen[wanted])
            costs[wanted] = replace(fit_cost(samples), cpu_s_per_byte=self._core_s(wanted))
        return LinkModel(self._comm.size, **costs)

    def _beyond_start_s(self, wanted: Collective, nbytes: int) -> float:
        """Return the seconds that bytes add to the start, which is long where latency is."""
        return median(self._times[wanted, nbytes]) - median(self._times[wanted, _SMALL])

    def _core_s(self, wanted: Collective) -> float:
        """Return the seconds by which a byte holds up the threads that compute."""
        samples = [
            (float(nbytes), seconds)
            for (collective, nbytes), times in self._cores.items()
            if collective == wanted
            for seconds in times
        ]
        on_cores = self._device.type == "cpu"
        return fit_cost(samples).beta_s_per_byte / torch.get_num_threads() if on_cores else 0.0

    def _add(self, probes: Sequence[Probe]) -> None:
        for collective, nbytes, seconds, core_s in probes:
            key = (collective, nbytes)
            self._times.setdefault(key, deque(maxlen=_KEPT)).append(seconds)
            self._cores.setdefault(key, deque(maxlen=_KEPT)).append(core_s)

    def _probe_size(self) -> int:
        """Return the bytes of a large probe: most of its time is its bytes'."""
        cost = self.model().allgather
        sizes = [each for each in _LARGE if each <= _LARGEST_PROBE]
        long = (each for each in sizes if each * cost.beta_s_per_byte > cost.alpha_s)
        return next(long, sizes[-1])

    def _differs(self, probes: Sequence[Probe], large: int) -> bool:
        """Return whether probes of `large` bytes took another time than before, all in all."""
        ratios = []
        for wanted in COLLECTIVES:
            before = self._times.get((wanted, large))
            found = [
                seconds
                for collective, nbytes, seconds, _ in probes
                if (collective, nbytes) == (wanted, large)
            ]
            if before:
                ratios.append(median(found) / median(before))
        # A change of the rate is one for all of them
        return bool(ratios) and not 1 / _CHANGE < median(ratios) < _CHANGE

    def _probe(
        self, sizes: Sequence[int], collectives: Sequence[Collective] = COLLECTIVES
    ) -> list[Probe]:
        """Run probes, and return what each took: the median over ranks. Collective."""
        own = [
            (collective, nbytes, *self._seconds(collective, nbytes))
            for nbytes in sizes
            for collective in collectives
        ]
        gathered = _gather(self._comm, own, name="sylvie.link.probes")
        return [
            (
                collective,
                nbytes,
                median(rank[number][2] for rank in gathered),
                median(rank[number][3] for rank in gathered),
            )
            for number, (collective, nbytes, *_) in enumerate(own)
        ]

    def _seconds(self, collective: Collective, nbytes: int) -> tuple[float, float]:
        """Run one probe; return this rank's seconds, and those of its other threads. Collective."""
        comm, size = self._comm, self._comm.size
        ready = torch.zeros(1, device=self._device)
        comm.allreduce_(ready, name="sylvie.link.ready").wait()
        begin: Callable[[], Handle]
        name = f"sylvie.link.{collective}.{nbytes}"
        if collective == "allreduce":
            floats = torch.zeros(nbytes // 4, device=self._device)
            begin = lambda: comm.allreduce_(floats, name=name)  # noqa: E731  # one of three
        else:
            rows = torch.zeros(size, nbytes // size, dtype=torch.uint8, device=self._device)
            ones = [1] * size
            if collective == "allgather":
                begin = lambda: comm.allgather(rows.view(-1), name=name)  # noqa: E731
            else:
                begin = lambda: comm.alltoall(rows, ones, ones, name=name)  # noqa: E731
        started_s, cores_s = time.perf_counter(), time.process_time() - time.thread_time()
        begin().wait()
        cores_s = time.process_time() - time.thread_time() - cores_s
        return time.perf_counter() - started_s, cores_s


def _gather(comm: Communicator, own: Sequence[Any], *, name: str) -> list[list[Any]]:
    """Return every rank's samples, or probes, in rank order. Collective."""
    texts = gather_bytes(comm, json.dumps(own).encode(), name=name)
    return [json.loads(text) for text in texts]
