"""The command line hands over to the right command and turns errors into exit statuses."""

from __future__ import annotations

import argparse
import importlib

import pytest

from horovod_sylvie.__main__ import COMMANDS, main
from horovod_sylvie.commands import check


def test_main_without_a_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_main_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_main_knows_the_module_of_every_command(name: str) -> None:
    module = importlib.import_module(f"horovod_sylvie.commands.{name.replace('-', '_')}")
    module.add_arguments(argparse.ArgumentParser())
    assert callable(module.run)


def test_main_command_that_raises_fails_with_its_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: argparse.Namespace) -> int:
        raise ValueError("expected a graph, got none.")

    monkeypatch.setattr(check, "run", fail)
    assert main(["check"]) == 1
    expected = "python -m horovod_sylvie check: expected a graph, got none.\n"
    assert capsys.readouterr().err == expected


def test_main_interrupted_returns_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(arguments: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "run", interrupt)
    assert main(["check"]) == 130
