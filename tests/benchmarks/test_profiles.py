"""The profile names functions by their place, adds up, and is told what exists."""

from __future__ import annotations

import cProfile
import json
import time
from collections.abc import Callable

import pytest
from profiles import main, parse_arguments, table
from profiles_rank import functions_of, name_of


@pytest.mark.parametrize(
    ("file", "function", "expected"),
    [
        ("/a/env/lib/site-packages/torch/nn/modules/linear.py", "forward", "torch/nn/modules/lin"),
        ("/a/horovod_sylvie/horovod_sylvie/comm/horovod.py", "wait", "horovod_sylvie/comm/horovod"),
        ("/a/b/train.py", "main", "train.py:main"),
        ("~", "<built-in method time.sleep>", "time.sleep"),
        ("~", "<method 'copy_' of 'torch._C.TensorBase' objects>", "copy_"),
    ],
)
def test_function_is_named_from_its_package_on(file: str, function: str, expected: str) -> None:
    assert name_of(file, function).startswith(expected)


def sleep_twice() -> None:
    time.sleep(0.0)
    time.sleep(0.0)


def test_what_was_watched_is_listed_with_its_calls() -> None:
    watcher = cProfile.Profile()
    watcher.enable()
    for _ in range(3):
        json.dumps({})
    sleep_twice()
    watcher.disable()
    calls = {each["name"]: each["calls"] for each in functions_of(watcher)}
    assert calls["__init__.py:dumps"] == 3
    assert calls["time.sleep in benchmarks/test_profiles.py:sleep_twice"] == 2


def test_table_has_the_longest_first_and_adds_up_to_the_whole() -> None:
    functions = [
        {"name": "short", "calls": 10, "own_s": 0.1},
        {"name": "long", "calls": 20, "own_s": 0.6},
        {"name": "middle", "calls": 5, "own_s": 0.3},
    ]
    lines = table({"steps": 10, "functions": functions}, num_rows=2).splitlines()
    assert lines[2:] == [
        "| `long` | 2 | 60.00 | 60.0 % |",
        "| `middle` | 0.5 | 30.00 | 30.0 % |",
        "| 1 others | | 10.00 | 10.0 % |",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("step --model sage", "--model: expected one of mlp"),
        ("epoch --way LAGS", "--way: expected one of no exchange"),
        ("step --steps 0", "--steps: expected at least 1, got 0"),
        ("step --rate 1gbit --launcher lab", "rate 1gbit: expected a --launcher with"),
    ],
)
def test_argument_out_of_range_is_said(
    words: str, message: str, refusal: Callable[..., str]
) -> None:
    assert message in refusal(parse_arguments, words.split())


@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", ["step", "epoch"])
def test_profile_of_two_ranks_has_what_it_exchanged(
    what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
    small = ["--model", "resnet20"] if what == "step" else ["--graph", "synthetic:nodes=200"]
    main([what, *small, "--steps", "2", "--rows", "400"])
    printed = capsys.readouterr().out
    assert "ms watched" in printed
    assert "run_backward" in printed
    assert "horovod_sylvie/comm/" in printed
