"""Clocks: the host's, and which one is for which devices."""

from __future__ import annotations

import time

import pytest
import torch

from horovod_sylvie.device import clock as clock_module
from horovod_sylvie.device.clock import CudaClock, HostClock, clock_of, settle
from tests.device.fake_streams import FakeClock


def test_marks_of_the_host_are_complete_and_tell_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", iter([1.0, 3.5]).__next__)
    clock = HostClock()
    first, second = clock.mark(), clock.mark()
    assert clock.is_of_host and first.is_complete() and second.is_complete()
    assert second.seconds_after(first) == 2.5


CPU, GPU, OTHER_GPU = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)


@pytest.mark.parametrize(
    ("devices", "kind"),
    [
        ([], HostClock),
        ([CPU, CPU], HostClock),
        ([GPU, GPU], CudaClock),
        ([CPU, GPU], HostClock),
        ([GPU, OTHER_GPU], HostClock),
    ],
)
def test_clock_is_that_of_the_one_gpu_or_the_host_s(
    devices: list[torch.device], kind: type[object]
) -> None:
    assert type(clock_of(devices)) is kind


def test_settling_waits_until_a_mark_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock([0.0, 1.0])
    first, second = clock.mark(), clock.mark()

    def sleep(_: float) -> None:
        clock.num_complete += 1

    monkeypatch.setattr(clock_module.time, "sleep", sleep)
    settle(second)
    assert clock.num_complete == 2
    assert second.seconds_after(first) == 1.0
