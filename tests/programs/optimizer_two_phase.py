"""The two-phase exchange on real ranks: against stock Horovod, and against itself on threads.

Run by optimizer_checks.py.
"""

from __future__ import annotations

import math
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from torch import nn

import horovod_sylvie as hvs
from tests.programs import optimizer_training as training
from tests.programs.optimizer_identities import (
    assert_equal_on_all_ranks,
    assert_equal_on_threads,
    ours,
    stock,
)
from tests.programs.optimizer_training import top_k, train


def two_phase(density: float = 0.1, **options: Any) -> Any:
    return top_k(density, exchange="two-phase", **options)


def make_model() -> nn.Module:
    """Make a model with three chunks in one layer, and less than one in the other."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return nn.Sequential(
            nn.Linear(training.WIDTH, 400, bias=False),
            nn.Tanh(),
            nn.Linear(400, training.CLASSES, bias=False),
        )


def check_two_phase_of_all_elements_equals_horovod() -> None:
    model = make_model()
    whole = ours(compression=two_phase(1.0, value_dtype=torch.float32))
    got = train(model, whole, hvd.rank())
    torch.testing.assert_close(got, train(model, stock(), hvd.rank()), rtol=1e-4, atol=1e-6)


def check_two_phase_ranks_end_equal_and_runs_repeat() -> None:
    model = make_model()
    for number, options in enumerate(
        ({}, {"value_dtype": torch.float32}, {"warmup": hvs.Warmup(4, (0.5, 0.2))})
    ):
        wrap = ours(compression=two_phase(**options))
        first = train(model, wrap, hvd.rank())
        assert_equal_on_all_ranks(first, f"two-phase.equal.{number}")
        assert torch.equal(first, train(model, wrap, hvd.rank()))


def check_two_phase_equals_itself_on_threads() -> None:
    """Rows are summed in rank order by their owner, so the transport cannot matter."""
    model = make_model()
    cases: list[dict[str, Any]] = [
        {"compression": two_phase()},
        {"compression": two_phase(), "momentum": "dgc", "op": "Sum"},
        {"compression": two_phase(), "groups": 1, "backward_passes_per_step": 2},
        {"compression": two_phase(residual_units="learning_rate"), "clip_norm": 0.5},
    ]
    assert_equal_on_threads(model, cases)


def check_two_phase_overflow_on_one_rank_stops_all() -> None:
    if hvd.size() == 1:
        return
    model = make_model()
    optimizer = ours(compression=two_phase())(training.sgd(model), model)
    for step in range(3):
        optimizer.zero_grad()
        loss = training.loss_of(model, step, hvd.rank())
        overflows = step == 1 and hvd.rank() == hvd.size() - 1
        (loss * math.inf if overflows else loss).backward()
        if step != 1:
            optimizer.step()
            continue
        before = training.parameters_of(model)
        with pytest.raises(hvs.NonFiniteGradientError, match=f"on rank {hvd.size() - 1} "):
            optimizer.step()
        assert torch.equal(training.parameters_of(model), before)
    assert_equal_on_all_ranks(training.parameters_of(model), "two-phase.overflow")


CHECKS = (
    check_two_phase_of_all_elements_equals_horovod,
    check_two_phase_ranks_end_equal_and_runs_repeat,
    check_two_phase_equals_itself_on_threads,
    check_two_phase_overflow_on_one_rank_stops_all,
)
