"""PyTorch's own data parallelism, over gloo, among the ways of exchange that are compared.

    DDP                  DistributedDataParallel: buckets of 25 MB, summed while backward goes on
    DDP float16          its hook `fp16_compress_hook`
    PowerSGD rank 1, 2   its hook `powerSGD_hook`: matrices as products of two thin ones, with error
                         feedback and warm start (Vogels et al. 2019); all in one bucket

Its processes find each other through the Horovod job that they are in, so that all ways take turns
in one job.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import horovod_sylvie as hvs

_POWER_SGD_RANKS: Final[Mapping[str, int]] = MappingProxyType(
    {"PowerSGD rank 1": 1, "PowerSGD rank 2": 2}
)
_HALF: Final = "DDP float16"
DDP_WAYS: Final = ("DDP", _HALF, *_POWER_SGD_RANKS)
_FIRST_COMPRESSED_STEP: Final = 2  # the least that PowerSGD's error feedback allows
_MIN_COMPRESSION: Final = 2  # PowerSGD's default: what it saves less on travels whole


def join_process_group(comm: hvs.Communicator) -> None:
    """Make the ranks of a Horovod job a process group of PyTorch, over gloo. Collective."""
    if "HOROVOD_GLOO_IFACE" in os.environ:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", os.environ["HOROVOD_GLOO_IFACE"])
    store = None
    place = b""
    if comm.rank == 0:
        address = own_address(os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"))
        store = dist.TCPStore(address, 0, comm.size, is_master=True, wait_for_workers=False)
        place = f"{address}:{store.port}".encode()
    address, _, port = hvs.gather_bytes(comm, place, name="step.ddp")[0].decode().rpartition(":")
    if store is None:
        store = dist.TCPStore(address, int(port), comm.size, is_master=False)
    dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)


def leave_process_group(comm: hvs.Communicator) -> None:
    """Take the process group down once no rank uses it, if there is one. Collective."""
    comm.allreduce(torch.zeros(1), name="step.ddp.left").wait()
    if dist.is_initialized():
        dist.destroy_process_group()


def own_address(other: str) -> str:
    """Return the address under which this host sends to another. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((other, 9))
        address: str = probe.getsockname()[0]
        return address


def wrap(way: str, module: nn.Module) -> nn.Module:
    """Let DDP exchange a module's gradients in its backward.

    Args:
        way: One of `DDP_WAYS`.
        module: Its parameters must have the same values on all ranks.

    Returns:
        What is called instead of the module.
    """
    # PowerSGD submits from callbacks, which over gloo come in another order on each rank: messages
    # of two buckets get mixed up, and processes abort. So it gets one bucket for all.
    num_bytes = sum(4 * each.numel() for each in module.parameters())
    bucket_mb = num_bytes / 2**20 + 1 if way in _POWER_SGD_RANKS else None
    # Means and variances stay a rank's own, as in the other ways
    wrapped = DistributedDataParallel(
        module, broadcast_buffers=False, init_sync=False, bucket_cap_mb=bucket_mb
    )
    if way == _HALF:
        hook: Callable[..., Any] = default_hooks.fp16_compress_hook
        wrapped.register_comm_hook(None, hook)
    elif way in _POWER_SGD_RANKS:
        state = powerSGD_hook.PowerSGDState(
            None,
            matrix_approximation_rank=_POWER_SGD_RANKS[way],
            start_powerSGD_iter=_FIRST_COMPRESSED_STEP,
            min_compression_rate=_MIN_COMPRESSION,
        )
        wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return wrapped


def bytes_of_ddp(way: str, model: nn.Module, num_ranks: int) -> float:
    """Return the bytes that a rank sends for one step, as rings send them."""
    num_elements = sum(
        _num_sent(tuple(each.shape), _POWER_SGD_RANKS.get(way)) for each in model.parameters()
    )
    width = 2.0 if way == _HALF else 4.0
    return 2 * (num_ranks - 1) / num_ranks * width * num_elements


def _num_sent(shape: tuple[int, ...], rank: int | None) -> int:
    whole = math.prod(shape)
    if rank is None or len(shape) < 2:
        return whole
    rows, columns = shape[0], whole // shape[0]
    factors = (rows + columns) * min(rank, rows, columns)
    return factors if factors * _MIN_COMPRESSION < whole else whole
