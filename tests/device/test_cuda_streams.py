"""The streams and the clock of a real GPU. Written without one: nothing of it has run yet."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from horovod_sylvie.comm.staged import StagedCommunicator
from horovod_sylvie.device.clock import CudaClock, settle
from horovod_sylvie.device.cuda_streams import CudaStreams
from horovod_sylvie.device.from_host import moved_from_host, write_from_host

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

GPU = torch.device("cuda", 0)
LONG_CYCLES = 50_000_000  # some hundredths of a second


def test_copy_out_comes_behind_the_kernels_before_it_and_blocks_nobody() -> None:
    streams, source = CudaStreams(), torch.zeros(1 << 20, device=GPU)
    host = streams.allocate(source.nbytes).view(torch.float32)
    assert host.is_pinned() and streams.holds(source) and not streams.holds(host)
    torch.cuda._sleep(LONG_CYCLES)
    source.fill_(3.0)
    copied = streams.copy_out(source, host)
    assert not copied.is_complete()
    torch.cuda.synchronize()
    assert copied.is_complete()
    assert bool((host == 3.0).all())


@pytest.mark.parametrize("in_place", [True, False])
def test_current_stream_comes_behind_a_copy_in(in_place: bool) -> None:
    streams = CudaStreams()
    host = streams.allocate(1 << 22).view(torch.float32)
    host.fill_(5.0)
    out = torch.zeros_like(host, device=GPU) if in_place else None
    target, read = streams.copy_in(host, GPU, out)
    total = target.sum()
    assert out is None or target.data_ptr() == out.data_ptr()
    assert total.item() == 5.0 * len(host)
    assert read.is_complete()


def test_result_of_the_default_stream_can_be_used_in_another() -> None:
    result = torch.full((1 << 20,), 2.0, device=GPU)
    with torch.cuda.stream(torch.cuda.Stream(GPU)):
        CudaStreams().adopt(result)
        assert result.sum().item() == 2.0 * len(result)


def test_bytes_of_the_host_arrive_without_waiting_for_the_device() -> None:
    torch.cuda._sleep(LONG_CYCLES)
    moved = moved_from_host(torch.arange(64, dtype=torch.uint8), GPU)
    write_from_host(moved[:2], torch.tensor([9, 9], dtype=torch.uint8))
    event = torch.cuda.current_stream(GPU).record_event()
    assert not event.query()
    assert moved.tolist() == [9, 9, *range(2, 64)]


def test_marks_are_times_of_the_device() -> None:
    clock = CudaClock(GPU)
    first = clock.mark()
    torch.cuda._sleep(LONG_CYCLES)
    second = clock.mark()
    assert not clock.is_of_host and not second.is_complete()
    settle(second)
    assert second.seconds_after(first) > 0.0


def test_staged_operations_equal_those_on_the_host() -> None:
    def body(comm: LoopbackCommunicator, device: torch.device) -> list[Tensor]:
        staged = StagedCommunicator(comm, CudaStreams(), timeout_s=20.0)
        results = []
        for step in range(3):
            own = torch.arange(4096.0, device=device) * (comm.rank + step + 1)
            handles = [
                staged.allreduce(own, name="a"),
                staged.allgather(own, name="b"),
                staged.alltoall(own, [2048] * 2, [2048] * 2, name="c"),
                staged.allreduce_(own.clone(), name="d", postscale=0.5),
            ]
            results += [handle.wait().cpu() for handle in handles]
        return results

    for device in (torch.device("cpu"), GPU):
        found = run_loopback(2, lambda comm, device=device: body(comm, device))  # type: ignore[misc]
        if device.type == "cpu":
            expected = found
    for mine, theirs in zip(found, expected, strict=True):
        assert all(torch.equal(*pair) for pair in zip(mine, theirs, strict=True))
