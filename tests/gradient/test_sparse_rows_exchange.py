"""Sparse gradients of embeddings, by row: on some ranks, on none, dense where that is cheaper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.comm.protocol import Handle
from horovod_sylvie.gradient.exchange import Step
from horovod_sylvie.gradient.parameter import ExchangedParameter
from horovod_sylvie.gradient.reduction import Reduction
from horovod_sylvie.gradient.sparse_rows_exchange import SparseRowsExchange, sparse_rows
from tests.gradient.training import assert_all_equal, fill, on_ranks, top_k, wrap

N, WIDTH = 40, 3

WHOLE = top_k(1.0, value_dtype=torch.float32)

Rows = Sequence[Sequence[int]]  # of each rank

ROWS: dict[str, list[Rows]] = {  # of each step
    "all": [[[1, 2], [2, 3]], [[5], [6]]],
    "duplicates": [[[1, 1, 2, 1], [2, 2]], [[0, 0, 0], [39, 39]]],
    "one rank": [[[1, 2], []], [[], [3]]],
    "none": [[[], []], [[1], [2]], [[], []], [[3], []]],
    "dense": [[[*range(N)], [*range(0, N, 2)]], [[7], [8]], [[*range(N)], [*range(N)]]],
}


class Words(nn.Module):
    """An embedding with sparse gradients, and a dense layer."""

    def __init__(self, *, sparse: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(N, WIDTH, sparse=sparse)
        self.linear = nn.Linear(WIDTH, 1)
        fill(self)

    def loss(self, rows: Sequence[int]) -> Tensor:
        embedded = self.embedding(torch.tensor(rows, dtype=torch.int64)) if rows else 0.0
        return self.linear(torch.ones(1, WIDTH) + torch.as_tensor(embedded).sum(0)).sum()


OPTIMIZERS = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    "sparse adam": lambda model: torch.optim.SparseAdam([model.embedding.weight], lr=0.1),
}


def train_words(
    comm: LoopbackCommunicator, steps: list[Rows], optimizer_name: str = "sgd", **options: Any
) -> tuple[Tensor, list[Tensor]]:
    """Return the embedding's weights, and its gradient of each step."""
    model, gradients = Words(), []
    options = {"compression": hvs.Compression.none} | options
    optimizer = wrap(model, comm, lambda _: OPTIMIZERS[optimizer_name](model), **options)
    for rows in steps:
        optimizer.zero_grad()
        model.loss(rows[comm.rank]).backward()
        optimizer.step()
        gradients.append(model.embedding.weight.grad)
    return model.embedding.weight.detach().clone(), gradients


def train_words_plainly(steps: list[Rows], optimizer_name: str, scale: float) -> Tensor:
    model = Words()
    optimizer = OPTIMIZERS[optimizer_name](model)
    for rows in steps:
        model.zero_grad()
        for own in rows:
            (scale * model.loss(own)).backward()
        if not any(rows):
            # On ranks, a gradient without rows: as a dense one is of zeros, as with Horovod
            model.embedding(torch.zeros(0, dtype=torch.int64)).sum().backward()
        optimizer.step()
    return model.embedding.weight.detach().clone()


@pytest.mark.parametrize("op", ["Average", "Sum"])
@pytest.mark.parametrize("sparse_as_dense", [False, True])
@pytest.mark.parametrize("compression", [hvs.Compression.none, WHOLE])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("rows", ROWS)
def test_rows_of_all_ranks_are_summed(
    rows: str, optimizer: str, compression: object, sparse_as_dense: bool, op: str
) -> None:
    # The first step must have a row, or nothing tells that the gradient is sparse
    steps = [ROWS["all"][0], *ROWS[rows]]
    options = {"compression": compression, "sparse_as_dense": sparse_as_dense, "op": op}
    results = on_ranks(2, lambda comm: train_words(comm, steps, optimizer, **options))
    assert_all_equal([weight for weight, _ in results])
    expected = train_words_plainly(steps, optimizer, 0.5 if op == "Average" else 1.0)
    torch.testing.assert_close(results[0][0], expected, rtol=1e-4, atol=1e-5)
    for _, gradients in results:
        for gradient in gradients:
            assert gradient is not None
            assert gradient.is_sparse
    if not sparse_as_dense:
        for gradient, used in zip(results[0][1], steps, strict=True):
            wanted = sorted({row for own in used for row in own})
            assert gradient.coalesce().indices()[0].tolist() == wanted


@pytest.mark.parametrize("sparse_as_dense", [False, True])
@pytest.mark.parametrize("rows", ROWS)
def test_rows_in_any_first_step_train_alike(rows: str, sparse_as_dense: bool) -> None:
    results = on_ranks(
        2, lambda comm: train_words(comm, ROWS[rows], sparse_as_dense=sparse_as_dense)
    )
    assert_all_equal([weight for weight, _ in results])
    expected = train_words_plainly(ROWS[rows], "sgd", 0.5)
    torch.testing.assert_close(results[0][0], expected, rtol=1e-4, atol=1e-5)


def test_cheaper_way_is_taken() -> None:
    def body(comm: LoopbackCommunicator, rows: Rows) -> float:
        model = Words()
        optimizer = wrap(model, comm)
        model.loss(rows[comm.rank]).backward()
        optimizer.step()
        (cost,) = [each for each in optimizer.telemetry().groups if each.kind == "SparseRows"]
        return cost.payload_bytes

    row_bytes = 4 * WIDTH
    # 3 rows are rounded up to 4, with 8 bytes of row number each
    assert on_ranks(2, lambda comm: body(comm, [[1, 2, 3], [4]])) == 2 * [4 * (8 + row_bytes)]
    # one allreduce of all rows, with a column that counts
    everything: Rows = [[*range(N)], [1]]
    assert on_ranks(2, lambda comm: body(comm, everything)) == 2 * [N * (row_bytes + 4)]


@pytest.mark.parametrize("groups", [1, 2, None])
@pytest.mark.parametrize("compression", [hvs.Compression.none, hvs.Compression.bf16, top_k()])
def test_embedding_that_is_first_used_later_leaves_its_group(
    compression: object, groups: int | None
) -> None:
    steps = [*ROWS["none"], *ROWS["duplicates"], *ROWS["dense"]]
    results = on_ranks(
        2, lambda comm: train_words(comm, steps, compression=compression, groups=groups)
    )
    assert_all_equal([weight for weight, _ in results])
    if compression == hvs.Compression.none:
        expected = train_words_plainly(steps, "sgd", 0.5)
        torch.testing.assert_close(results[0][0], expected, rtol=1e-4, atol=1e-5)


def test_dense_gradient_on_one_rank_and_sparse_on_another_raises_on_both() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = Words(sparse=comm.rank == 0)
        optimizer = wrap(model, comm)
        model.loss([1, 2]).backward()
        text = f"rank {comm.rank}: the gradient of 'embedding.weight' is sparse on some rank and d"
        with pytest.raises(hvs.PeerError, match=text):
            optimizer.step()

    on_ranks(2, body)


def test_mixed_kinds_are_summed_where_sparse_travels_dense() -> None:
    def body(comm: LoopbackCommunicator) -> Tensor:
        model = Words(sparse=comm.rank == 0)
        optimizer = wrap(
            model, comm, lambda _: torch.optim.SGD(model.parameters(), 0.1), sparse_as_dense=True
        )
        model.loss([1, 2]).backward()
        optimizer.step()
        return model.embedding.weight.detach()

    results = on_ranks(2, body)
    assert_all_equal(results)
    torch.testing.assert_close(results[0], train_words_plainly([[[1, 2], [1, 2]]], "sgd", 0.5))


class Damaged:
    """Passes everything on, and changes what an allgather of rows brings."""

    def __init__(self, inner: LoopbackCommunicator, damage: Any) -> None:
        self.inner, self.damage = inner, damage
        self.rank, self.size = inner.rank, inner.size

    def allgather(self, tensor: Tensor, *, name: str) -> Handle:
        handle = self.inner.allgather(tensor, name=name)
        wait = handle.wait

        def changed() -> Tensor:
            received = wait()
            self.damage(received)
            return received

        handle.wait = changed
        return handle


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (N, "2 rows of which 1 lie outside"),
        (-2, "of which 1 lie outside"),
        (-1, "1 rows of which 0"),
    ],
)
def test_wrong_row_numbers_raise_and_name_the_rank(number: int, text: str) -> None:
    def damage(received: Tensor) -> None:
        received[3, :8] = torch.tensor([number]).view(torch.uint8)  # the second row of rank 1

    def body(inner: LoopbackCommunicator) -> None:
        comm: Any = inner if inner.rank else Damaged(inner, damage)
        model = Words()
        parameter = ExchangedParameter("words", model.embedding.weight)
        exchange = SparseRowsExchange(comm, parameter, Reduction())
        model.loss([1, 2]).backward()
        exchange.expect([2, 2])
        exchange.start(Step(0))
        if inner.rank == 0:
            with pytest.raises(hvs.PayloadError, match=f"rows of rank 1 for .*'words'.*{text}"):
                exchange.wait()
        else:
            assert exchange.wait() == []

    on_ranks(2, body)


def test_rows_are_sorted_and_each_comes_once() -> None:
    grad = torch.sparse_coo_tensor(
        torch.tensor([[5, 1, 5]]),
        torch.tensor([[1.0, 2], [3, 4], [5, 6]]),
        (7, 2),
        check_invariants=True,
    )
    rows, values = sparse_rows(grad)
    assert rows.tolist() == [1, 5]
    assert values.tolist() == [[3, 4], [6, 8]]
    by_element = (
        torch.zeros(7, 2)
        .index_put_((torch.tensor([5, 1]), torch.tensor([0, 1])), torch.ones(1))
        .to_sparse()
    )
    rows, values = sparse_rows(by_element)
    assert rows.tolist() == [1, 5]
    assert values.tolist() == [[0, 1], [1, 0]]
