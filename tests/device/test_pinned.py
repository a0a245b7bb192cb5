"""Page-locked buffers: used again, and never too early."""

from __future__ import annotations

import pytest
import torch

from horovod_sylvie.device.pinned import PinnedBuffers, laid_out
from tests.device.fake_streams import FakeStreams


@pytest.mark.parametrize(
    ("nbytes", "capacity"), [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192), (1 << 20, 1 << 20)]
)
def test_buffer_has_the_next_power_of_two(nbytes: int, capacity: int) -> None:
    assert len(PinnedBuffers(FakeStreams().allocate).take(nbytes)) == capacity


def test_buffer_that_is_given_back_is_taken_again_by_its_size_only() -> None:
    streams = FakeStreams()
    buffers = PinnedBuffers(streams.allocate)
    first = buffers.take(5000)
    buffers.give_back(first)
    assert buffers.take(9000) is not first
    assert buffers.take(8000) is first
    assert buffers.take(8000) is not first
    assert streams.num_allocated == 3


def test_buffer_that_the_device_reads_waits_for_its_turn() -> None:
    streams = FakeStreams()
    buffers = PinnedBuffers(streams.allocate)
    first, second = buffers.take(10), buffers.take(10)
    for buffer in (first, second):
        buffers.give_back(buffer, streams.copy_in(buffer, buffer.device)[1])
    streams.complete(streams.incoming, 1)
    assert buffers.take(10) is second
    third = buffers.take(10)
    assert third is not first and third is not second
    streams.complete(streams.incoming)
    assert buffers.take(10) is first


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (7,), (2, 3, 4)])
def test_layout_is_that_of_the_tensor_in_the_buffer_s_memory(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    buffer = torch.zeros(4096, dtype=torch.uint8)
    view = laid_out(buffer, torch.empty(shape, dtype=dtype))
    assert (tuple(view.shape), view.dtype) == (shape, dtype)
    view.fill_(1)
    assert int((buffer != 0).sum()) >= view.numel()
    assert not buffer[view.nbytes :].any()
    assert view.numel() == 0 or view.data_ptr() == buffer.data_ptr()
