"""Every program says what it does and takes: `--help` ends well."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = sorted(
    path.relative_to(ROOT)
    for folder in ("benchmarks", "examples")
    for path in (ROOT / folder).glob("*.py")
    if "parse_arguments(" in (text := path.read_text()) and "__main__" in text
)


def test_programs_are_found() -> None:
    assert Path("examples/full_graph.py") in PROGRAMS
    assert Path("benchmarks/step.py") in PROGRAMS


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_help_describes_the_program(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("horovod", reason="programs import it")
    monkeypatch.setattr(sys, "argv", [str(program), "--help"])
    monkeypatch.syspath_prepend(str((ROOT / program).parent))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / program), run_name="__main__")
    assert ended.value.code == 0
    said = capsys.readouterr().out
    docstring = ast.get_docstring(ast.parse((ROOT / program).read_text()))
    assert docstring is not None
    assert " ".join(docstring.split()[:4]) in " ".join(said.split())
