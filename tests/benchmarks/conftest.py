"""The benchmarks are programs: they import each other from their own folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return what a program says on a command line that it refuses, on one line."""

    def said(parse: Callable[[Sequence[str]], object], words: Sequence[str]) -> str:
        with pytest.raises(SystemExit):
            parse(words)
        return " ".join(capsys.readouterr().err.split())

    return said
