"""DDP among the ways of the step benchmark: what it sends, and a job in which all take turns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import step
import torch
from step_ddp import DDP_WAYS, bytes_of_ddp, own_address
from step_ways import NO_EXCHANGE, STOCK_HOROVOD
from torch import nn


@pytest.mark.parametrize(
    ("way", "num_bytes"),
    [
        ("DDP", 4 * (200 * 100 + 100)),
        ("DDP float16", 2 * (200 * 100 + 100)),
        ("PowerSGD rank 1", 4 * (200 + 100 + 100)),
        ("PowerSGD rank 2", 4 * (2 * (200 + 100) + 100)),
    ],
)
def test_bytes_are_those_of_rings(way: str, num_bytes: int) -> None:
    assert bytes_of_ddp(way, nn.Linear(200, 100), 4) == 2 * 3 / 4 * num_bytes


def test_matrices_that_are_no_smaller_as_factors_travel_whole() -> None:
    assert bytes_of_ddp("PowerSGD rank 2", nn.Linear(4, 4), 2) == 4 * (16 + 4)
    convolution = nn.Conv2d(16, 32, 3, bias=False)  # a matrix of 32 x 144
    assert bytes_of_ddp("PowerSGD rank 1", convolution, 2) == 4 * (32 + 144)


def test_own_address_is_the_one_that_reaches_another() -> None:
    assert own_address("127.0.0.1") == "127.0.0.1"


@pytest.mark.timeout(200)
def test_ways_of_ddp_take_turns_with_horovods(tmp_path: Path) -> None:
    pytest.importorskip("horovod.torch", reason="needs Horovod")
    if not torch.distributed.is_gloo_available():
        pytest.skip("needs a torch with gloo")
    file = tmp_path / "step.json"
    ways = [NO_EXCHANGE, STOCK_HOROVOD, *DDP_WAYS]
    words = ["--json", str(file), "--models", "resnet20", "--compute", "real"]
    words += ["--ways", ",".join(ways), "--rounds", "1", "--turn-s", "0", "--timeout", "150"]
    step.main(words)
    (job,) = json.loads(file.read_text())["jobs"].values()
    assert list(job["ways"]) == ways
    assert all(figures["step_s"] > 0 for figures in job["ways"].values())
    sent = {way: figures["bytes_sent"] for way, figures in job["ways"].items()}
    assert sent["DDP"] == sent[STOCK_HOROVOD] == 2 * sent["DDP float16"]
    assert 0 < sent["PowerSGD rank 1"] < sent["PowerSGD rank 2"] < sent["DDP float16"]
