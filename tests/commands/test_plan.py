"""`plan`: units, refusals, and one model from measurement to table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from horovod_sylvie.__main__ import main

FACTORY = """
import torch
from torch import nn

def make():
    model = nn.Sequential(nn.Linear(64, 4096), nn.ReLU(), nn.Linear(4096, 400))
    x = torch.randn(8, 64)
    return model, lambda: model(x).square().mean()

def nothing():
    return None
"""


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "planned_factory.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "planned_factory", raising=False)
    return "planned_factory:make"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--rate", "fast"], "expected a rate such as 10gbit or 100mbit for --rate, got 'fast'"),
        (["--rate", "1gbit", "--ranks", "1"], "expected numbers from 2, with commas, for --ranks"),
        (["--measure", "--start", "1ms"], "--start goes with --rate: --measure finds it"),
        (["--rate", "1gbit", "--latency", "5"], "expected a time such as 50us or 1ms, got '5'"),
        (["--rate", "1gbit", "--min-density", "0"], "expected 0 < --min-density <= --max-density"),
    ],
)
def test_wrong_argument_says_what_was_expected(
    factory: str, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", factory, *arguments]) == 1
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--hidden", "--features"])
def test_option_of_halo_exchanges_is_refused(
    factory: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", factory, "--rate", "1gbit", option, "16"]) == 1
    assert f"{option} goes with --partition. Leave it out." in capsys.readouterr().err


def test_neither_or_both_of_factory_and_partition_is_a_usage_error(
    factory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in ([], [factory, "--partition", "parts"]):
        with pytest.raises(SystemExit, match="2"):
            main(["plan", *arguments, "--rate", "1gbit"])
    assert "--partition" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("planned_factory", "expected module:function for FACTORY, got 'planned_factory'"),
        ("planned_factory:nothing", "to return a model and a function that computes a loss"),
        ("planned_factory:absent", "to return a model and a function that computes a loss"),
        ("no_such_module:make", "No module named 'no_such_module'"),
    ],
)
def test_wrong_factory_says_what_was_expected(
    factory: str, place: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", place, "--rate", "1gbit"]) == 1
    assert text in capsys.readouterr().err


def test_slow_link_prints_a_sparse_plan_and_its_gain(
    factory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", factory, "--rate", "10mbit", "--ranks", "2,8", "--steps", "2"]) == 0
    printed = capsys.readouterr().out
    assert "the plan for 2 ranks" in printed
    assert "allgather" in printed
    assert "compression does not pay" not in printed


def test_fast_link_says_that_compression_does_not_pay(
    factory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--rate", "1000gbit", "--latency", "1us", "--start", "1us", "--steps", "2"]
    assert main(["plan", factory, *options]) == 0
    assert "compression does not pay here with 4 ranks: use" in capsys.readouterr().out


def test_json_has_every_number_of_ranks(factory: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--rate", "1gbit", "--ranks", "2,4", "--steps", "2", "--json"]
    assert main(["plan", factory, *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["num_ranks"] for each in found] == [2, 4]
    assert set(found[0]["steps_s"]) >= {"dense float32", "planned"}
