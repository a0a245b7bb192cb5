"""A rank of the soak trains both models, and sees when ranks drift apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from soak_rank import Pace, Soak

import horovod_sylvie as hvs

GRAPH = "synthetic:nodes=60,degree=4,classes=3,features=4,seed=0"
SHORT = Pace(duration_s=0.0, num_steps=4, longest_delay_s=0.01)


def on_parts(folder: Path, body: Callable[[Soak], Any]) -> list[Any]:
    """Run on two ranks, which are threads."""
    hvs.partition_graph(GRAPH, folder / "parts", 2, method="random")
    parts = [hvs.load_partition(folder / "parts", rank, 2) for rank in range(2)]
    return list(hvs.run_loopback(2, lambda comm: body(Soak(parts[comm.rank], comm, SHORT))))


def test_epoch_is_told_alike_on_all_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def body(soak: Soak) -> tuple[Any, bool]:
        before = soak.hash_of_parameters()
        (epoch,) = soak.run()
        return epoch, before != soak.hash_of_parameters() == epoch["hash"]

    first, second = on_parts(tmp_path, body)
    assert first == second
    epoch, has_trained = first
    assert has_trained
    assert epoch["steps"] == 4
    assert len(epoch["memory_bytes"]) == len(epoch["longest_step_s"]) == 2
    assert min(epoch["memory_bytes"]) > 2**20
    (line,) = capsys.readouterr().out.splitlines()
    assert f"parameters {epoch['hash']}" in line


@pytest.mark.parametrize("model", ["mlp", "gnn"])
def test_rank_whose_parameters_differ_ends_the_soak(tmp_path: Path, model: str) -> None:
    def body(soak: Soak) -> None:
        if soak.comm.rank == 1:
            last = list(getattr(soak, model).parameters())[-1]
            with torch.no_grad():
                last[0] += 1e-3
        soak.run()

    with pytest.raises(RuntimeError, match="epoch 1: parameters differ by rank"):
        on_parts(tmp_path, body)
