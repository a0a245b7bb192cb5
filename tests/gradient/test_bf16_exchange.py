"""Dense exchange in bfloat16: two roundings, and a sum in float32 between them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from tests.gradient.training import assert_all_equal, on_ranks


def gradient(rank: int, num_elements: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(num_elements, generator=generator).to(dtype)


@pytest.mark.parametrize("op", ["Average", "Sum"])
@pytest.mark.parametrize("num_elements", [1, 2, 300, 1025])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_sum_is_rounded_where_it_is_sent_and_nowhere_else(
    size: int, num_elements: int, op: str
) -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        weight = nn.Parameter(torch.zeros(num_elements))
        optimizer = hvs.DistributedOptimizer(
            torch.optim.SGD([weight], 1.0), compression=hvs.Compression.bf16, op=op, comm=comm
        )
        (weight * gradient(comm.rank, num_elements)).sum().backward()
        optimizer.synchronize()
        assert weight.grad is not None
        return weight.grad

    results = on_ranks(size, body)
    assert_all_equal(results)
    total = torch.stack([gradient(r, num_elements).bfloat16().float() for r in range(size)]).sum(0)
    expected = total * (1 / size if op == "Average" else 1.0)
    assert torch.equal(results[0], expected.bfloat16().float())


def test_range_is_that_of_float32() -> None:
    def body(comm: LoopbackCommunicator, name: str) -> list[float]:
        weight = nn.Parameter(torch.zeros(2))
        optimizer = hvs.DistributedOptimizer(
            torch.optim.SGD([weight], 1.0), compression=getattr(hvs.Compression, name), comm=comm
        )
        (weight * torch.tensor([2.0**100, 2.0**-100])).sum().backward()
        optimizer.synchronize()
        assert weight.grad is not None
        return weight.grad.tolist()

    assert on_ranks(2, lambda comm: body(comm, "bf16")) == 2 * [[2.0**100, 2.0**-100]]
    assert on_ranks(2, lambda comm: body(comm, "fp16")) == 2 * [[float("inf"), 0.0]]
