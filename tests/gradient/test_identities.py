"""What must hold whatever the model: identities between runs, and between ranks."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from tests.gradient.training import (
    COMPRESSIONS,
    OPTIMIZERS,
    assert_all_equal,
    loss_of,
    make_model,
    on_ranks,
    top_k,
    trained,
    trained_plainly,
    vector_of,
    wrap,
)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_one_rank_equals_the_plain_optimizer_bitwise(optimizer: str, compression: str) -> None:
    (got,) = on_ranks(
        1, lambda comm: trained(comm, optimizer, compression=COMPRESSIONS[compression])
    )
    assert torch.equal(got, trained_plainly(optimizer))


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_density_one_equals_no_compression_to_rounding(size: int, op: str) -> None:
    whole = top_k(1.0, value_dtype=torch.float32)
    got = on_ranks(size, lambda comm: trained(comm, op=op, compression=whole))
    expected = on_ranks(size, lambda comm: trained(comm, op=op))
    torch.testing.assert_close(got[0], expected[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_no_compression_equals_one_process_with_all_batches(optimizer: str, size: int) -> None:
    got = on_ranks(size, lambda comm: trained(comm, optimizer))
    # Adam divides by a root of squares: rounding of a tiny gradient becomes rounding of a step
    torch.testing.assert_close(
        got[0], trained_plainly(optimizer, num_ranks=size), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_end_with_the_same_bits(size: int, compression: str) -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        return trained(comm, "adam", compression=COMPRESSIONS[compression])

    first, second = on_ranks(size, body), on_ranks(size, body)
    assert_all_equal([*first, *second])  # and two runs do


def trained_in_order(
    comm: LoopbackCommunicator, order: tuple[int, ...], compression: object, groups: object
) -> Tensor:
    """Train with one backward per layer, so that gradients arrive in the order given."""
    model = make_model()
    members = [[*model[0].parameters()], [*model[2].parameters(), *model[3].parameters()]]
    members.append([*model[5].parameters()])
    optimizer = wrap(model, comm, compression=compression, groups=members[::2] if groups else None)
    for step in range(4):
        optimizer.zero_grad()
        loss = loss_of(model, step, comm.rank)
        for place in order:
            # A gradient that is not accumulated by the others' backward
            gradients = torch.autograd.grad(loss, members[place], retain_graph=True)
            replayed = sum(
                (each * gradient).sum()
                for each, gradient in zip(members[place], gradients, strict=True)
            )
            assert isinstance(replayed, Tensor)
            replayed.backward()
        optimizer.step()
    return vector_of(model)


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_order_in_which_gradients_come_changes_nothing(compression: str, groups: bool) -> None:
    orders = list(permutations(range(3)))

    def body(comm: LoopbackCommunicator) -> list[Tensor]:
        # Every rank in another order
        return [
            trained_in_order(comm, orders[(n + comm.rank) % 6], COMPRESSIONS[compression], groups)
            for n in range(6)
        ]

    for results in on_ranks(3, body):
        assert_all_equal(results)


def test_number_of_threads_changes_nothing() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            generator = torch.Generator().manual_seed(0)
            self.weight = nn.Parameter(torch.randn(400, 500, generator=generator))

    def body(comm: LoopbackCommunicator, num_threads: int) -> Tensor:
        torch.set_num_threads(num_threads)  # of this thread
        model = Wide()
        optimizer = wrap(model, comm, compression=top_k(0.01))
        for step in range(3):
            optimizer.zero_grad()
            generator = torch.Generator().manual_seed(10 * step + comm.rank)
            (model.weight * torch.randn(400, 500, generator=generator)).sum().backward()
            optimizer.step()
        return vector_of(model)

    results = []
    try:
        for num_threads in (1, 2, 5):
            results += on_ranks(2, lambda comm, n=num_threads: body(comm, n))
    finally:
        torch.set_num_threads(1)
    assert_all_equal(results)


def test_sum_is_mean_times_ranks() -> None:
    def gradient(comm: LoopbackCommunicator, op: str, compression: object) -> Tensor:
        model = make_model()
        optimizer = wrap(model, comm, op=op, compression=compression)
        loss_of(model, 0, comm.rank).backward()
        optimizer.synchronize()
        return torch.cat([each.grad.flatten() for each in model.parameters()])

    for compression in (hvs.Compression.none, hvs.Compression.bf16, top_k()):
        # 4 is a power of two: bitwise
        total = on_ranks(4, lambda comm, c=compression: gradient(comm, "Sum", c))[0]
        mean = on_ranks(4, lambda comm, c=compression: gradient(comm, "Average", c))[0]
        assert torch.equal(total, 4 * mean)
