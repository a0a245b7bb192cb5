"""The command line of the full-graph example says what is wrong with it, and what it stands for."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
from full_graph_choices import make_bits, make_codec, make_compression, make_staleness
from full_graph_options import make_parser, parse_arguments

import horovod_sylvie as hvs


def parse(monkeypatch: pytest.MonkeyPatch, options: str) -> argparse.Namespace:
    monkeypatch.setattr("sys.argv", ["full_graph.py", "--data", "graph.npz", *options.split()])
    return parse_arguments("")


@pytest.mark.parametrize(
    ("options", "codec"),
    [
        ("", hvs.OneBit()),
        ("--codec full", hvs.FullPrecision()),
        ("--codec 4", hvs.Bits(4)),
        ("--codec auto --code centroid", hvs.Automatic(hvs.OneBit("centroid"))),
        ("--codec 8 --delta", hvs.Delta(hvs.Bits(8), 50)),
        (
            "--code centroid --delta --refresh-every 7",
            hvs.Delta(hvs.OneBit("centroid"), 7),
        ),
    ],
)
def test_codec_is_the_one_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, options: str, codec: object
) -> None:
    assert make_codec(parse(monkeypatch, options)) == codec


@pytest.mark.parametrize(
    ("options", "staleness"),
    [
        ("", hvs.Synchronous()),
        ("--staleness pipelined", hvs.Pipelined(None, 5)),
        ("--staleness pipelined --sync-every 3 --warmup 2", hvs.Pipelined(3, 2)),
        ("--staleness pipelined --start zeros", hvs.Pipelined(start="zeros")),
        (
            "--staleness bounded --max-drift 0.2 --warmup 1",
            hvs.BoundedStaleness(0.2, 1),
        ),
    ],
)
def test_staleness_is_the_one_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, options: str, staleness: object
) -> None:
    assert make_staleness(parse(monkeypatch, options)) == staleness


@pytest.mark.parametrize(
    ("options", "bits"),
    [
        ("", None),
        ("--bits-policy budget --budget 123456", hvs.BudgetBits(123456)),
        (
            "--bits-policy degree --base-bit 2 --adapt-base",
            hvs.DegreeBits(2, adapt=True),
        ),
    ],
)
def test_bits_are_those_that_were_asked_for(
    monkeypatch: pytest.MonkeyPatch, options: str, bits: object
) -> None:
    assert make_bits(parse(monkeypatch, options)) == bits


@pytest.mark.parametrize(
    ("options", "compression"),
    [
        ("", hvs.Compression.none),
        (
            "--compression topk --density 0.05 --min-elements 0",
            hvs.Compression.topk(0.05, min_elements=0),
        ),
        (
            "--compression lags",
            hvs.Compression.lags(0.001, 0.01, min_elements=1024),
        ),
        (
            "--compression lags --density 0.0005",
            hvs.Compression.lags(0.0005, 0.0005, min_elements=1024),
        ),
    ],
)
def test_compression_is_the_one_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, options: str, compression: object
) -> None:
    assert make_compression(parse(monkeypatch, options)) == compression


@pytest.mark.parametrize(("options", "layers"), [("", 2), ("--model jknet", 8), ("--layers 5", 5)])
def test_layers_follow_the_model(
    monkeypatch: pytest.MonkeyPatch, options: str, layers: int
) -> None:
    assert parse(monkeypatch, options).layers == layers


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--sync-every 5", "--sync-every 5: only for --staleness pipelined"),
        ("--staleness bounded --start zeros", "--start zeros: only for --staleness pipelined"),
        ("--staleness pipelined --max-drift 0.2", "--max-drift 0.2: only for --staleness bounded"),
        ("--warmup 2", "--warmup 2: only for --staleness pipelined or bounded"),
        (
            "--staleness pipelined --start zeros --warmup 2",
            "--warmup: --start zeros begins without one",
        ),
        ("--staleness pipelined --sync-every 0", "Pipelined: expected a number of epochs from 1"),
        ("--staleness bounded --max-drift nan", "BoundedStaleness: expected a finite number"),
        ("--code centroid --codec 2", "--code centroid: only for --codec 1 or auto"),
        ("--budget 5", "--budget 5: only for --bits-policy budget"),
        ("--bits-policy budget", "--bits-policy budget: needs --budget"),
        ("--bits-policy budget --budget 0", "BudgetBits: expected an int of at least 1"),
        ("--bits-policy degree --codec 4", "--bits-policy degree: only for --codec 1"),
        ("--bits-policy degree --code centroid --delta", "--delta: .* leave out --bits-policy"),
        ("--base-bit 2", "--base-bit 2: only for --bits-policy degree"),
        ("--adapt-base", "--adapt-base: only for --bits-policy degree"),
        ("--delta", "Delta: expected a codec whose error is smaller .* OneBit.code='centroid'."),
        ("--delta --codec full", "--delta: only for a --codec of few bits, got full"),
        ("--codec auto --staleness bounded", "--codec auto: not with --staleness bounded"),
        ("--delta --codec auto", "--delta: only for a --codec of few bits, got auto"),
        ("--refresh-every 5", "--refresh-every 5: only for --delta"),
        ("--density 0.1", "--density 0.1: only for --compression topk or lags"),
        ("--min-elements 5", "--min-elements 5: only for --compression topk or lags"),
        ("--compression topk --density 2", "Compression.topk: expected .*'density'"),
        ("--jk-mode max", "--jk-mode max: only for --model jknet"),
        ("--resume", "--resume: needs --checkpoint"),
        ("--checkpoint-every 3", "--checkpoint-every: needs --checkpoint"),
        ("--checkpoint {folder} --checkpoint-every 0", "--checkpoint-every: expected at least 1"),
        ("--checkpoint {folder}/new --resume", "--resume: there is no checkpoint in .*new"),
        ("--checkpoint {folder}", "it holds epoch-000012 already. Give --resume"),
        (
            "--checkpoint {folder} --resume --epochs 9",
            "--resume: .*epoch-000012 is beyond --epochs 9",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    options: str,
    text: str,
) -> None:
    (tmp_path / "epoch-000012").mkdir()
    with pytest.raises(SystemExit):
        parse(monkeypatch, options.format(folder=tmp_path))
    error = " ".join(capsys.readouterr().err.split())
    assert re.search(text, error), error


def test_checkpoint_may_be_resumed_up_to_its_own_epoch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "epoch-000012").mkdir()
    assert parse(monkeypatch, f"--checkpoint {tmp_path} --resume --epochs 12").resume


def test_each_option_has_a_help_or_says_what_it_is() -> None:
    named = {"--model", "--layers", "--hidden", "--norm", "--epochs", "--lr", "--weight-decay"}
    named |= {"--dropout", "--seed", "--method", "--compression"}
    for action in make_parser("")._actions:
        assert action.help or named & set(action.option_strings), action.option_strings
