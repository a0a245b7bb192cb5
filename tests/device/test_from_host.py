"""Small tensors from the host: where they should be, without a detour."""

from __future__ import annotations

import torch

from horovod_sylvie.device.from_host import moved_from_host, write_from_host


def test_bytes_are_written_where_they_belong() -> None:
    target = torch.zeros(6, dtype=torch.uint8)
    write_from_host(target[1:4], torch.tensor([7, 8, 9], dtype=torch.uint8))
    assert target.tolist() == [0, 7, 8, 9, 0, 0]


def test_tensor_for_the_host_stays_where_it_is() -> None:
    source = torch.arange(3)
    assert moved_from_host(source, torch.device("cpu")) is source


def test_tensor_for_another_device_is_made_there() -> None:
    moved = moved_from_host(torch.arange(3), torch.device("meta"))
    assert (moved.device.type, moved.dtype, moved.shape) == ("meta", torch.int64, (3,))
