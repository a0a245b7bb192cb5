"""The one door: which arguments are refused, with which words."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

import horovod_sylvie as hvs
from tests.gradient.training import make_model, on_ranks, top_k, wrap


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"op": "Adasum"}, NotImplementedError, "Adasum combines whole gradients pair by pair"),
        ({"op": "Min"}, ValueError, "expected hvd.Average or hvd.Sum for 'op', got Min."),
        ({"op": "mean"}, ValueError, "'Average' or 'Sum' for 'op', got 'mean'."),
        (
            {"gradient_predivide_factor": 0.0},
            ValueError,
            "expected a positive number for 'gradient_predivide_factor', got 0.0.",
        ),
        (
            {"op": "Sum", "gradient_predivide_factor": 2.0},
            ValueError,
            "gradient_predivide_factor is not supported with op != Average, got 2.0.",
        ),
        ({"compression": "topk"}, TypeError, "for 'compression', got 'topk'."),
        ({"backward_passes_per_step": 0}, ValueError, "expected backward_passes_per_step > 0"),
        ({"clip_norm": 0.0}, ValueError, "positive number or None for 'clip_norm', got 0.0."),
        ({"clip_norm": float("nan")}, ValueError, "or None for 'clip_norm', got nan."),
        ({"clip_norm": "1"}, ValueError, "or None for 'clip_norm', got '1'."),
        ({"clip_norm": True}, ValueError, "or None for 'clip_norm', got True."),
        ({"telemetry_every": -1}, ValueError, "steps from 0 for 'telemetry_every', got -1."),
        ({"telemetry_every": 1.5}, ValueError, "steps from 0 for 'telemetry_every', got 1.5."),
        ({"telemetry_every": True}, ValueError, "from 0 for 'telemetry_every', got True."),
        ({"momentum": 0.9}, ValueError, "expected 'post' or 'dgc' for 'momentum', got 0.9."),
        ({"groups": -1}, ValueError, "for 'groups', got -1."),
        ({"scaler": 1024.0}, TypeError, "expected a torch.amp.GradScaler or None for 'scaler', go"),
    ],
)
@pytest.mark.parametrize("size", [1, 2])
def test_argument_out_of_range_raises(size: int, options: dict[str, Any], error, text) -> None:
    with pytest.raises(error, match=re.escape(text)):
        on_ranks(size, lambda comm: wrap(make_model(), comm, **options))


def test_what_is_no_optimizer_raises() -> None:
    for wrong in (None, make_model(), torch.optim.SGD):
        with pytest.raises(
            TypeError, match="expected a torch.optim.Optimizer for 'optimizer', got"
        ):
            on_ranks(2, lambda comm, w=wrong: hvs.DistributedOptimizer(w, comm=comm))


def test_optimizer_wrapped_twice_raises() -> None:
    def body(comm: Any) -> None:
        optimizer = wrap(make_model(), comm)
        hvs.DistributedOptimizer(optimizer, comm=comm)

    with pytest.raises(ValueError, match="that is not distributed yet for 'optimizer', got one"):
        on_ranks(2, body)


def test_older_name_of_groups_warns_and_works() -> None:
    def body(comm: Any) -> list[str]:
        text = "Parameter `num_groups` has been replaced by `groups`."
        with pytest.warns(DeprecationWarning, match=text):
            optimizer = wrap(make_model(), comm, compression=hvs.Compression.bf16, num_groups=2)
        return [group.name for group in optimizer.telemetry().groups]

    def new(comm: Any) -> list[str]:
        optimizer = wrap(make_model(), comm, compression=hvs.Compression.bf16, groups=2)
        return [group.name for group in optimizer.telemetry().groups]

    (by_warning,) = on_ranks(1, body)
    assert by_warning == []  # one rank exchanges nothing
    assert len(on_ranks(2, new)[0]) == 2


def test_op_is_a_name_or_horovods_constant() -> None:
    hvd = pytest.importorskip("horovod.torch")
    for op in ("Average", "Sum", hvd.Average, hvd.Sum):
        on_ranks(2, lambda comm, op=op: wrap(make_model(), comm, op=op))
    with pytest.raises(NotImplementedError, match="Use hvd.DistributedOptimizer"):
        on_ranks(2, lambda comm: wrap(make_model(), comm, op=hvd.Adasum))


def test_positional_arguments_are_horovods() -> None:
    def body(comm: Any) -> None:
        model = make_model()
        optimizer = hvs.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), 0.1),
            model.named_parameters(),
            hvs.Compression.fp16,
            2,
            "Average",
            2.0,
            0,
            2,
            True,
            None,
            comm=comm,
        )
        assert optimizer.backward_passes_per_step == 2

    on_ranks(2, body)


def test_names_are_optional() -> None:
    def body(comm: Any) -> None:
        model = nn.Linear(3, 2)
        optimizer = hvs.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), 0.1), compression=top_k(), comm=comm
        )
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()

    on_ranks(2, body)
