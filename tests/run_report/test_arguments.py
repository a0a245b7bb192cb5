"""What a report is told wrongly is refused in words that say what is right."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from horovod_sylvie.run_report import arguments


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (lambda: arguments.checked_directory(3), "expected a path for 'directory', got 3"),
        (lambda: arguments.checked_directory(""), "expected a path for 'directory', got ''"),
        (lambda: arguments.checked_title(None), "expected a text for 'title', got None"),
        (lambda: arguments.checked_title(""), "expected a text for 'title', got ''"),
        (lambda: arguments.checked_options([1]), "a mapping or None for 'options', got list"),
        (lambda: arguments.checked_number("loss", "a"), "expected one number for 'loss', got 'a'"),
        (lambda: arguments.checked_number("loss", None), "one number for 'loss', got None"),
        (lambda: arguments.checked_number("loss", torch.zeros(2)), "one number for 'loss'"),
        (
            lambda: arguments.checked_scores("scores", [1]),
            "expected a mapping or None for 'scores'",
        ),
        (lambda: arguments.checked_scores("scores", {"f1": "x"}), r"for 'scores\['f1'\]', got 'x'"),
        (lambda: arguments.checked_accuracy("high"), "one number for 'accuracy"),
        (lambda: arguments.checked_epoch(1.0, None), "expected an int for 'epoch', got 1.0"),
        (lambda: arguments.checked_epoch(True, None), "expected an int for 'epoch', got True"),
    ],
)
def test_argument_of_the_wrong_kind_is_refused(check: Callable[[], object], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        check()


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (lambda: arguments.checked_accuracy(97.2), "from 0 to 1 for 'accuracy', got 97.2"),
        (lambda: arguments.checked_accuracy({"val": -0.1}), "got -0.1 for 'val'. Divide per cent"),
        (lambda: arguments.checked_accuracy(math.inf), "from 0 to 1 for 'accuracy', got inf"),
        (lambda: arguments.checked_seconds(-1), "expected a time from 0 for 'seconds', got -1.0"),
        (lambda: arguments.checked_seconds(math.nan), "for 'seconds', got nan"),
        (lambda: arguments.checked_seconds(math.inf), "for 'seconds', got inf"),
        (lambda: arguments.checked_steps(0), "expected an int of at least 1 for 'steps', got 0"),
        (lambda: arguments.checked_steps(2.5), "at least 1 for 'steps', got 2.5"),
        (lambda: arguments.checked_epoch(3, 3), "expected an 'epoch' behind 3, got 3"),
    ],
)
def test_argument_out_of_its_range_is_refused(check: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, {}),
        (0.5, {"accuracy": 0.5}),
        (torch.tensor(1.0), {"accuracy": 1.0}),
        ({"val": 0.25, "test": None}, {"val": 0.25}),
        ({}, {}),
    ],
)
def test_accuracy_is_one_or_some(value: Any, expected: dict[str, float]) -> None:
    assert arguments.checked_accuracy(value) == expected


def test_accuracy_may_be_no_number() -> None:
    assert math.isnan(arguments.checked_accuracy(math.nan)["accuracy"])


def test_epochs_follow_each_other() -> None:
    assert arguments.checked_epoch(None, None) == 1
    assert arguments.checked_epoch(None, 41) == 42
    assert arguments.checked_epoch(0, None) == 0
    assert arguments.checked_epoch(50, 41) == 50


def test_rest_is_taken_as_it_is() -> None:
    assert arguments.checked_directory("a") == arguments.checked_directory(Path("a")) == Path("a")
    assert arguments.checked_options({"lr": 0.1, "json": None}) == {"lr": "0.1", "json": "None"}
    assert arguments.checked_options(None) == {}
    assert arguments.checked_number("loss", torch.tensor([2.5], requires_grad=True)) == 2.5
