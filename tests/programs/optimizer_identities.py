"""The optimizer on real ranks against stock Horovod, plain torch, and itself on threads.

Run by optimizer_checks.py. With two ranks a sum has one order, and what must be equal is equal bit
by bit.
"""

from __future__ import annotations

from typing import Any

import horovod.torch as hvd
import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from tests.programs import optimizer_training as training
from tests.programs.optimizer_training import Wrap, make_model, top_k, train

COMPRESSIONS = {
    "none": hvs.Compression.none,
    "fp16": hvs.Compression.fp16,
    "bf16": hvs.Compression.bf16,
    "Horovod's fp16": hvd.Compression.fp16,
    "topk": top_k(0.1),
    "topk fp32": top_k(0.1, value_dtype=torch.float32),
    "topk warm-up": top_k(0.05, warmup=hvs.Warmup(4, (0.5, 0.2))),
    "topk paper": top_k(0.1, residual_units="learning_rate"),
}


def ours(**options: Any) -> Wrap:
    return lambda optimizer, model: hvs.DistributedOptimizer(
        optimizer, model.named_parameters(), **options
    )


def stock(**options: Any) -> Wrap:
    return lambda optimizer, model: hvd.DistributedOptimizer(
        optimizer, model.named_parameters(), **options
    )


def assert_same(got: Tensor, expected: Tensor) -> None:
    """Compare bit by bit where the order of a sum is the same, else to rounding."""
    if hvd.size() <= 2:
        assert torch.equal(got, expected)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def assert_equal_on_all_ranks(own: Tensor, name: str) -> None:
    everyone = hvd.allgather(own.view(torch.uint8)[None], name=name)
    assert bool((everyone == everyone[0]).all()), "the ranks differ"


def check_dense_compressions_equal_horovods() -> None:
    model = make_model()
    for own, theirs in (
        (hvs.Compression.none, hvd.Compression.none),
        (hvd.Compression.none, hvd.Compression.none),
        (hvd.Compression.fp16, hvd.Compression.fp16),
        (hvs.Compression.fp16, hvd.Compression.fp16),
    ):
        got = train(model, ours(compression=own), hvd.rank())
        expected = train(model, stock(compression=theirs), hvd.rank())
        if theirs is hvd.Compression.none:
            assert_same(got, expected)
        else:  # a sum in float16 depends on its order in the third digit
            torch.testing.assert_close(got, expected, rtol=5e-3, atol=5e-4)
            assert hvd.size() > 2 or torch.equal(got, expected)


def check_options_equal_horovods() -> None:
    model = make_model()
    cases: list[dict[str, Any]] = [
        {"op": hvd.Sum},
        {"gradient_predivide_factor": 4.0},
        {"groups": 2},
        {"backward_passes_per_step": 3},
        {"groups": 1, "backward_passes_per_step": 2, "op": hvd.Sum},
        {"groups": 2, "gradient_predivide_factor": 4.0},  # Horovod ignores the factor here
    ]
    for options in cases:
        passes = options.get("backward_passes_per_step", 1)
        got = train(model, ours(**options), hvd.rank(), passes=passes)
        expected = train(model, stock(**options), hvd.rank(), passes=passes)
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def check_density_one_equals_horovod() -> None:
    model = make_model()
    whole = ours(compression=top_k(1.0, value_dtype=torch.float32))
    for make_optimizer in (training.sgd, lambda m: torch.optim.RMSprop(m.parameters(), lr=1e-3)):
        got = train(model, whole, hvd.rank(), make_optimizer=make_optimizer)
        expected = train(model, stock(), hvd.rank(), make_optimizer=make_optimizer)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


def check_reduced_gradient_is_the_mean() -> None:
    """One step by hand: what `grad` holds after synchronize() is the mean over ranks."""
    for name, tolerance in (("none", 1e-6), ("fp16", 2**-10), ("bf16", 2**-7)):
        model = make_model()
        optimizer = ours(compression=COMPRESSIONS[name])(training.sgd(model), model)
        gradients = []
        for rank in range(hvd.size()):
            plain = make_model()
            training.loss_of(plain, 0, rank).backward()
            gradients.append(torch.cat([p.grad.reshape(-1) for p in plain.parameters()]))
        training.loss_of(model, 0, hvd.rank()).backward()
        optimizer.synchronize()
        got = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
        expected = torch.stack(gradients).mean(0)
        bound = tolerance * torch.stack(gradients).abs().amax(0) + 1e-7
        assert bool(((got - expected).abs() <= bound).all()), name


def check_ranks_end_equal_and_runs_repeat() -> None:
    model = make_model()
    for name, compression in COMPRESSIONS.items():
        first = train(model, ours(compression=compression), hvd.rank())
        assert_equal_on_all_ranks(first, f"equal.{name}")
        assert not torch.equal(first, training.parameters_of(model))
        if hvd.size() <= 2 or "topk" in name:
            assert torch.equal(first, train(model, ours(compression=compression), hvd.rank()))


def check_one_rank_equals_the_plain_optimizer() -> None:
    if hvd.size() > 1:
        return
    model = make_model()
    makers = (training.sgd, lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2))
    for make_optimizer in makers:
        plain = train(model, lambda optimizer, _: optimizer, 0, make_optimizer=make_optimizer)
        for compression in COMPRESSIONS.values():
            got = train(model, ours(compression=compression), 0, make_optimizer=make_optimizer)
            assert torch.equal(got, plain)


def assert_equal_on_threads(model: nn.Module, cases: list[dict[str, Any]]) -> None:
    """Check that training on these ranks gives the bits of training on threads, for any options."""
    for options in cases:
        passes = options.get("backward_passes_per_step", 1)
        got = train(model, ours(**options), hvd.rank(), passes=passes)
        on_threads = hvs.run_loopback(
            hvd.size(),
            lambda comm, options=options, passes=passes: train(
                model, ours(comm=comm, **options), comm.rank, passes=passes
            ),
        )
        assert torch.equal(got, on_threads[hvd.rank()]), options


def check_top_k_equals_itself_on_threads() -> None:
    """Payloads are summed in rank order everywhere, so the transport cannot matter."""
    model = make_model(bias=False)
    cases: list[dict[str, Any]] = [
        {"compression": top_k(0.1)},
        {"compression": top_k(0.1), "momentum": "dgc", "op": "Sum"},
        {"compression": top_k(0.1), "clip_norm": 0.5, "backward_passes_per_step": 2},
        {"compression": top_k(0.1), "groups": 1, "telemetry_every": 2},
    ]
    assert_equal_on_threads(model, cases)


def check_learning_is_not_lost_by_sparsity() -> None:
    losses = {}
    for name in ("none", "topk"):
        model = make_model()
        optimizer = ours(compression=COMPRESSIONS[name])(training.sgd(model), model)
        for step in range(40):
            optimizer.zero_grad()
            training.loss_of(model, step, hvd.rank()).backward()
            optimizer.step()
        losses[name] = held_out_loss(model)
    begin = held_out_loss(make_model())
    assert losses["none"] < 0.9 * begin, (losses, begin)
    assert losses["topk"] < 0.9 * begin, (losses, begin)


@torch.no_grad()
def held_out_loss(model: nn.Module) -> float:
    return sum(float(training.loss_of(model, 1000 + number, 0)) for number in range(8)) / 8


def check_operations_of_the_user_may_come_between() -> None:
    model = make_model()
    optimizer = ours(compression=top_k(0.1))(training.sgd(model), model)
    for step in range(3):
        optimizer.zero_grad()
        loss = training.loss_of(model, step, hvd.rank())
        loss.backward()
        mean = hvd.allreduce(loss.detach(), name="loss")
        hvd.broadcast(torch.ones(1), root_rank=0, name="something")
        optimizer.step()
        assert torch.isfinite(mean)
    assert_equal_on_all_ranks(training.parameters_of(model), "between")


def check_batch_norm_statistics_stay_local() -> None:
    """Buffers are no gradients: they stay each rank's own, as with Horovod."""
    model = nn.Sequential(make_model(), nn.BatchNorm1d(training.CLASSES))
    optimizer = ours()(training.sgd(model), model)
    training.loss_of(model, 0, hvd.rank()).backward()
    optimizer.step()
    means = hvd.allgather(model[1].running_mean[None], name="means")
    assert hvd.size() == 1 or not torch.equal(means[0], means[1])


CHECKS = (
    check_dense_compressions_equal_horovods,
    check_options_equal_horovods,
    check_density_one_equals_horovod,
    check_reduced_gradient_is_the_mean,
    check_ranks_end_equal_and_runs_repeat,
    check_one_rank_equals_the_plain_optimizer,
    check_top_k_equals_itself_on_threads,
    check_learning_is_not_lost_by_sparsity,
    check_operations_of_the_user_may_come_between,
    check_batch_norm_statistics_stay_local,
)
