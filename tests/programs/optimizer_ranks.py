"""Ranks that differ: process sets, sparse rows, uneven batches, checkpoints, disagreement.

Run by optimizer_checks.py.
"""

from __future__ import annotations

import io
import math
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from tests.programs import optimizer_training as training
from tests.programs.optimizer_identities import assert_equal_on_all_ranks, ours, stock
from tests.programs.optimizer_training import make_model, top_k, train

SPARSE = top_k(0.1)


def check_communicator_scales_in_place() -> None:
    comm = hvs.HorovodCommunicator()
    for dtype in (torch.float16, torch.float32, torch.float64):
        own = torch.full((3, 2), float(comm.rank + 1), dtype=dtype)
        handle = comm.allreduce_(own, name=f"scaled.{dtype}", prescale=0.5, postscale=4.0)
        assert handle.wait().data_ptr() == own.data_ptr()
        assert own.flatten().tolist() == [comm.size * (comm.size + 1.0)] * 6
    with pytest.raises(TypeError, match=r"allreduce_: expected one of .* got torch.bfloat16"):
        comm.allreduce_(torch.ones(2, dtype=torch.bfloat16), name="x")
    with pytest.raises(ValueError, match="allreduce_: expected a contiguous 'tensor'"):
        comm.allreduce_(torch.ones(2, 3).T, name="x")
    assert not comm.ranks_changed()
    if comm.size > 1:
        with pytest.raises(hvs.CommunicationError, match="use different options or models"):
            hvs.HorovodCommunicator().allgather(torch.ones(1 + comm.rank**2), name="rows").wait()


def check_process_sets_exchange_among_themselves(own_set: Any) -> None:
    comm = hvs.HorovodCommunicator(process_set=own_set)
    ranks = own_set.ranks
    assert (comm.rank, comm.size) == (ranks.index(hvd.rank()), len(ranks))
    model = make_model(bias=False)
    for options in ({}, {"compression": SPARSE}, {"compression": hvs.Compression.bf16}):
        got = train(model, ours(process_set=own_set, **options), hvd.rank())
        everyone = hvd.allgather(got[None], name="sets")
        assert all(torch.equal(everyone[rank], got) for rank in ranks)
        others = [rank for rank in range(hvd.size()) if rank not in ranks]
        assert not any(torch.equal(everyone[rank], got) for rank in others)
        on_threads = hvs.run_loopback(
            len(ranks),
            lambda threads, options=options: train(
                model, ours(comm=threads, **options), ranks[threads.rank]
            ),
        )
        torch.testing.assert_close(got, on_threads[comm.rank], rtol=1e-4, atol=1e-6)
    expected = train(model, stock(process_set=own_set), hvd.rank())
    torch.testing.assert_close(train(model, ours(process_set=own_set), hvd.rank()), expected)


def check_rank_outside_a_process_set_trains_alone(even: Any) -> None:
    model = make_model()
    got = train(model, ours(process_set=even, compression=SPARSE, clip_norm=100.0), hvd.rank())
    if not even.included():
        assert torch.equal(got, train(model, lambda optimizer, _: optimizer, hvd.rank()))
        with pytest.raises(ValueError, match=r"expected a registered process set that holds this"):
            hvs.HorovodCommunicator(process_set=even)


class Words(nn.Module):
    """An embedding with sparse gradients, and a layer on top."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(300, 4, sparse=sparse)
        self.top = nn.Linear(4, 2)

    def forward(self, words: list[int]) -> Tensor:
        if not words:
            return self.top(torch.ones(1, 4)).sum()
        return self.top(self.table(torch.tensor(words))).tanh().sum()


def check_sparse_rows_missing_on_some_ranks_equal_a_dense_run() -> None:
    # by step: on one rank only, on none, twice the same, on all ranks, so many that dense is less
    texts = ([[5, 7]], [], [[9, 9, 9]], [[1], [1, 2], [3], [4]], [list(range(280))])
    ends = []
    cases: tuple[tuple[bool, dict[str, Any]], ...] = (
        (False, {}),
        (True, {}),
        (True, {"sparse_as_dense": True}),
        (True, {"groups": 1}),
    )
    for sparse, options in cases:
        with torch.random.fork_rng():
            torch.manual_seed(3)
            model = Words(sparse=sparse)
        optimizer = ours(**options)(torch.optim.SGD(model.parameters(), lr=0.5), model)
        for step, text in enumerate(texts):
            optimizer.zero_grad()
            who = (hvd.rank() + step) % hvd.size()
            model(text[who] if who < len(text) else []).backward()
            optimizer.step()
        ends.append(training.parameters_of(model))
    assert_equal_on_all_ranks(ends[1], "rows")
    for end in ends[1:]:
        torch.testing.assert_close(end, ends[0], rtol=1e-5, atol=1e-6)


def check_sparse_adam_learns_and_broadcasts() -> None:
    model = Words(sparse=True)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvs.DistributedOptimizer(
        torch.optim.SparseAdam(model.table.parameters(), lr=0.1), model.table.named_parameters()
    )
    hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
    for step in range(3):
        optimizer.zero_grad()
        model([step, 10 + hvd.rank()] if hvd.rank() != 1 else []).backward()
        optimizer.step()
    assert_equal_on_all_ranks(model.table.weight.detach().reshape(-1), "sparse adam")


def check_ranks_that_run_out_of_batches_join() -> None:
    for compression in (hvs.Compression.none, hvs.Compression.bf16, SPARSE):
        model = make_model()
        plain = torch.optim.Adam(model.parameters(), lr=0.01)
        optimizer = ours(compression=compression, uneven_batches=True)(plain, model)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
        num_batches = (2, 5, 0, 3)[hvd.rank()]
        for step in range(num_batches):
            optimizer.zero_grad()
            training.loss_of(model, step, hvd.rank()).backward()
            optimizer.step()
            scheduler.step()
        last = optimizer.join()
        assert last == min(1, hvd.size() - 1)
        assert_equal_on_all_ranks(training.parameters_of(model), "joined")
        assert optimizer.state[next(model.parameters())]["step"] == (2 if hvd.size() == 1 else 5)


def check_mean_is_over_the_ranks_that_have_a_batch() -> None:
    layer = nn.Linear(3, 2, bias=False)
    nn.init.constant_(layer.weight, 0.5)
    plain = torch.optim.SGD(layer.parameters(), lr=1.0)
    optimizer = ours(uneven_batches=True)(plain, layer)
    for _ in range((2, 5, 0, 3)[hvd.rank()]):
        optimizer.zero_grad()
        layer(torch.ones(1, 3)).sum().backward()  # a gradient of 1 on every rank
        optimizer.step()
    optimizer.join()
    num_steps = 2 if hvd.size() == 1 else 5
    assert layer.weight.flatten().tolist() == pytest.approx([0.5 - num_steps] * 6)


def check_join_without_uneven_batches_says_what_to_pass() -> None:
    model = make_model()
    optimizer = ours()(training.sgd(model), model)
    if hvd.size() > 1:
        with pytest.raises(RuntimeError, match=r"DistributedOptimizer\(\.\.\., uneven_batches=Tru"):
            optimizer.join()


def check_resumed_training_equals_an_uninterrupted_one() -> None:
    options: dict[str, Any] = {"compression": top_k(0.1, warmup=hvs.Warmup(6))}
    expected = train(make_model(), ours(**options), hvd.rank(), num_steps=6)
    model = make_model()
    optimizer = ours(**options)(training.sgd(model), model)
    for step in range(6):
        if step == 3:
            file = io.BytesIO()
            torch.save([model.state_dict(), optimizer.state_dict()], file)
            file.seek(0)
            saved = torch.load(file, weights_only=True)
            model = make_model()
            optimizer = ours(**options)(training.sgd(model), model)
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        optimizer.zero_grad()
        training.loss_of(model, step, hvd.rank()).backward()
        optimizer.step()
    assert torch.equal(training.parameters_of(model), expected)


def check_consolidated_state_loads_on_fewer_ranks(even: Any) -> None:
    """What is pending as a whole stays: the mean with Average, the sum with Sum."""
    for op in (hvd.Average, hvd.Sum):
        model = make_model()
        optimizer = ours(compression=SPARSE, op=op)(training.sgd(model), model)
        training.loss_of(model, 0, hvd.rank()).backward()
        optimizer.step()
        if hvd.size() == 1:
            return
        own = residuals_of(optimizer)
        state = optimizer.consolidate()
        pending = hvd.allreduce(own, op=op, name="pending")
        if not even.included() or even.size() == 1:
            continue
        smaller = ours(compression=SPARSE, op=op, process_set=even)(training.sgd(model), model)
        smaller.load_state_dict(state)
        now = hvd.allreduce(residuals_of(smaller), op=op, name="now", process_set=even)
        torch.testing.assert_close(now, pending, rtol=1e-5, atol=1e-7)


def residuals_of(optimizer: Any) -> Tensor:
    tensors = optimizer.state_dict()["horovod_sylvie"]["tensors"]
    return torch.cat([tensors[name].reshape(-1) for name in sorted(tensors)])


def check_ranks_that_differ_say_so_on_every_rank() -> None:
    if hvd.size() == 1:
        return
    odd = hvd.rank() == hvd.size() - 1
    cases: list[tuple[dict[str, Any], nn.Module, str]] = [
        ({"compression": top_k(0.2 if odd else 0.1)}, make_model(), r"density=0\.1.*density=0\.2"),
        ({"compression": SPARSE}, make_model(bias=not odd), r"Rank 0 has '0\.bias float32"),
        ({"op": hvd.Sum if odd else hvd.Average}, make_model(), "op='Average'.*op='Sum'"),
        ({"clip_norm": 1.0 if odd else None}, make_model(), r"clip_norm=None.*clip_norm=1\.0"),
        ({}, make_model().to(torch.float64 if odd else torch.float32), "float32.*float64"),
        ({"uneven_batches": odd}, make_model(), "uneven_batches=False.*uneven_batches=True"),
    ]
    for options, model, text in cases:
        optimizer = ours(**options)(training.sgd(model), model)
        x, y = training.make_batch(0, hvd.rank())
        dtype = next(model.parameters()).dtype
        nn.functional.cross_entropy(model(x.to(dtype)), y).backward()
        with pytest.raises(hvs.PeerError, match=rf"^rank {hvd.rank()}: .*{text}"):
            optimizer.step()


def check_nan_on_one_rank_is_named_everywhere_and_training_goes_on() -> None:
    culprit = hvd.size() - 1
    model = make_model()
    optimizer = ours(compression=SPARSE)(training.sgd(model), model)
    for step in range(6):
        optimizer.zero_grad()
        loss = training.loss_of(model, step, hvd.rank())
        (loss * math.nan if step == 3 and hvd.rank() == culprit else loss).backward()
        if step == 3 and hvd.size() > 1:
            before = training.parameters_of(model)
            with pytest.raises(hvs.NonFiniteGradientError, match=rf"'0\.weight' on rank {culprit}"):
                optimizer.step()
            assert torch.equal(training.parameters_of(model), before)
        elif step != 3:
            optimizer.step()
    assert bool(torch.isfinite(training.parameters_of(model)).all())
    assert bool(torch.isfinite(residuals_of(optimizer)).all()) if hvd.size() > 1 else True
    assert_equal_on_all_ranks(training.parameters_of(model), "after nan")


CHECKS = (
    check_communicator_scales_in_place,
    check_process_sets_exchange_among_themselves,
    check_rank_outside_a_process_set_trains_alone,
    check_sparse_rows_missing_on_some_ranks_equal_a_dense_run,
    check_sparse_adam_learns_and_broadcasts,
    check_ranks_that_run_out_of_batches_join,
    check_mean_is_over_the_ranks_that_have_a_batch,
    check_join_without_uneven_batches_says_what_to_pass,
    check_resumed_training_equals_an_uninterrupted_one,
    check_consolidated_state_loads_on_fewer_ranks,
    check_ranks_that_differ_say_so_on_every_rank,
    check_nan_on_one_rank_is_named_everywhere_and_training_goes_on,
)
