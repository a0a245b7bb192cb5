"""Programs in the documents run, and print what the page says. Those of Horovod: `launched/`."""

from __future__ import annotations

import math
import re
import runpy
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import horovod_sylvie as hvs
from horovod_sylvie.halo.plan import MessageLayout
from tests.documents import PAGES, blocks_of, printed_by, programs_of
from tests.halo.test_codec import EVERY, WIDTHS, round_trip, send

Run = Callable[[str, str], str]

# Every block that has a file name is one of these
RUN_HERE = {
    "int8_codec.py",
    "my_model.py",
    "mymodel.py",
    "refused.py",
    "train_parts.py",
    "use_int8.py",
}
RUN_UNDER_HOROVOD = {"same.py", "train.py"}


def test_every_program_is_run_by_a_test() -> None:
    titles = [block.title for page in PAGES for block in blocks_of(page) if block.title]
    assert sorted(titles) == sorted(RUN_HERE | RUN_UNDER_HOROVOD)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a program of a page, and returns what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def run_program(page: str, program: str) -> str:
        for name, text in programs_of(page).items():
            Path(name).write_text(text)
            monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
        runpy.run_path(program, run_name="__main__")
        return capsys.readouterr().out

    return run_program


def test_own_model_on_two_ranks_trains_as_on_one(run: Run) -> None:
    printed = run("your-model.md", "train_parts.py")
    one, two, one_bit = re.findall(r"loss (\S+), test (\S+), (\S+) bytes", printed)
    assert float(two[0]) == pytest.approx(float(one[0]), abs=2e-5)
    assert float(one_bit[0]) == pytest.approx(float(one[0]), abs=0.1)
    shown = re.findall(r"(\S+) bytes", printed_by("your-model.md", "train_parts.py"))
    assert [one[2], two[2], one_bit[2]] == shown


def test_model_for_the_planner_is_a_model_and_its_loss(run: Run) -> None:
    assert run("choosing.md", "mymodel.py") == ""
    model, loss_of = runpy.run_path("mymodel.py")["make"]()
    loss_of().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_model_that_is_refused_says_what_the_page_says(run: Run) -> None:
    assert run("sharp-bits.md", "refused.py") == printed_by("sharp-bits.md", "refused.py")


def test_use_of_the_codec_prints_the_bytes_of_the_page(run: Run) -> None:
    printed = run("contributing.md", "use_int8.py")
    shown = printed_by("contributing.md", "use_int8.py")
    assert printed.partition(";")[0] == shown.partition(";")[0]
    assert float(re.findall(r"(\S+) %", printed)[0]) < 1  # two codes of 127


@pytest.fixture
def codec() -> hvs.Codec:
    """Return the codec that the page on contributing shows."""
    text = programs_of("contributing.md")["int8_codec.py"]
    assert len(text.splitlines()) <= 60, "the page promises 60 lines"
    names: dict[str, type[hvs.Codec]] = {"__name__": "int8_codec"}
    exec(compile(text, "int8_codec.py", "exec"), names)
    return names["Int8"]()


def test_codec_of_the_page_has_an_identifier_of_its_own(codec: hvs.Codec) -> None:
    others = {each.identifier for each in EVERY}
    assert max(others) < 0x0600 <= codec.identifier < 0x8000


@pytest.mark.parametrize("num_features", WIDTHS)
@pytest.mark.parametrize("num_rows", [1, 4])
def test_codec_of_the_page_is_within_a_step(
    codec: hvs.Codec, num_rows: int, num_features: int
) -> None:
    rows = torch.randn(num_rows, num_features)
    rows[0] *= 1e-3
    largest = rows.abs().amax(1, keepdim=True)
    assert bool(((round_trip(codec, rows) - rows).abs() <= 1.01 * largest / 127).all())


def test_codec_of_the_page_is_unbiased_and_seeded(codec: hvs.Codec) -> None:
    rows = torch.tensor([[1.0, 0.3, -0.7, 0.0]])
    decoded = torch.cat([round_trip(codec, rows, key) for key in range(500)])
    assert (decoded.mean(0) - rows[0]).abs().max() < 0.001  # eight standard errors
    assert torch.equal(round_trip(codec, rows, 2**64 - 1), round_trip(codec, rows, 2**64 - 1))


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), 3.2e38])
def test_codec_of_the_page_flags_what_it_cannot_hold(codec: hvs.Codec, value: float) -> None:
    rows = torch.ones(3, 5)
    rows[1, 2] = value
    assert send(codec, rows, [0, 1])[1] is True
    assert send(codec, rows, [0, 2, 0])[1] is False
    assert send(codec, rows, [])[0].shape == (0, 5)


@pytest.mark.parametrize(
    ("offset", "damage"),
    [(0, struct.pack("<f", value)) for value in (-1.0, 0.0, math.inf, math.nan)] + [(4, b"\x80")],
)
def test_codec_of_the_page_refuses_damaged_rows(
    codec: hvs.Codec, offset: int, damage: bytes
) -> None:
    class Damaged(type(codec)):  # type: ignore[misc]
        def decode(self, messages: Tensor, layout: MessageLayout, out: Tensor) -> None:
            messages[-1, offset : offset + len(damage)] = torch.tensor(list(damage))
            super().decode(messages, layout, out)

    with pytest.raises(ValueError, match="Int8: expected rows as encode writes them"):
        send(Damaged(), torch.ones(2, 3), [0, 1])
