"""The documents fit what they are about: links, names, commands, code, and the site's pages."""

from __future__ import annotations

import argparse
import importlib
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import horovod_sylvie as hvs
from horovod_sylvie.__main__ import COMMANDS
from tests.documents import DOCUMENTS, PAGES, ROOT, blocks_of

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
every_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix()
)


def prose_of(text: str) -> str:
    """Return a document without its blocks of code."""
    return re.sub(r"^ *(```|~~~).*?^ *\1", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors_of(text: str) -> set[str]:
    """Return the anchors that a site makes of headings; one that comes again gets a number."""
    anchors: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *#*$", prose_of(text), flags=re.MULTILINE):
        shown = LINK.sub(lambda link: link[0][1 : link[0].index("](")], heading)
        anchor = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        names = [anchor, *(f"{anchor}-{number}" for number in range(1, len(anchors) + 1))]
        anchors.add(next(name for name in names if name not in anchors))
    return anchors


def broken_links(document: Path) -> Iterator[str]:
    """Yield the relative links of a document that lead nowhere."""
    text = re.sub(r"`[^`\n]*`", "", prose_of(document.read_text()))
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and anchor not in anchors_of(target.read_text()):
            yield f"{link}: no such heading"


@every_document
def test_relative_links_of_a_document_lead_somewhere(document: Path) -> None:
    broken = list(broken_links(document))
    assert not broken, f"{document.relative_to(ROOT)}: " + "; ".join(broken)


def test_broken_links_of_a_known_document_are_found(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text(
        "# What `f(x)` does, in short\n## Twice\n## Twice\n"
        "[1](a.md) [2](#twice-1) [`c`](a.md#what-fx-does-in-short) [3](https://site/#x)\n"
        "[4](b.md) [5](#thrice) [6](a.md#twice-2) `[7](c.md)`\n```\n# Thrice\n[8](d.md)\n```\n"
    )
    assert list(broken_links(document)) == [
        "b.md: no such file",
        "#thrice: no such heading",
        "a.md#twice-2: no such heading",
    ]


def test_navigation_of_the_site_lists_every_page_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r": ([\w/-]+\.md)$", navigation, flags=re.MULTILINE)
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES]
    assert sorted(listed) == sorted(pages), "mkdocs.yml, below nav:"


def test_every_picture_is_shown_on_a_page() -> None:
    text = "".join(page.read_text() for page in DOCUMENTS)
    pictures = [path.name for path in (ROOT / "docs" / "images").iterdir()]
    assert pictures
    assert not [name for name in pictures if f"images/{name})" not in text]


def test_links_that_leave_the_site_become_paths_on_it() -> None:
    change = runpy.run_path(str(ROOT / "docs" / "site_hooks.py"))["on_page_markdown"]
    page = SimpleNamespace(file=SimpleNamespace(src_uri="reference/halo.md"))
    assert change(
        "[a](../gradients.md#x) [b/c.py](../../b/c.py) [d](halo.md) [e](https://e/)", page=page
    ) == ("[a](../gradients.md#x) `b/c.py` [d](halo.md) [e](https://e/)")


def documented_names() -> list[str]:
    """Return the names whose docstrings the reference shows."""
    text = "".join(page.read_text() for page in PAGES if page.parent.name == "reference")
    return re.findall(r"^::: horovod_sylvie\.(\S+)$", text, flags=re.MULTILINE)


def test_reference_has_every_public_name_once() -> None:
    names = documented_names()
    assert len(names) == len(set(names))
    assert set(hvs.__all__) - {"__version__"} == {name for name in names if "." not in name}


@pytest.mark.parametrize("document", PAGES, ids=lambda path: path.name)
def test_docstrings_that_a_page_shows_are_there(document: Path) -> None:
    for name in re.findall(r"^::: (\S+)$", document.read_text(), flags=re.MULTILINE):
        module, _, attribute = name.rpartition(".")
        found = getattr(importlib.import_module(module), attribute, None)
        found = importlib.import_module(name) if found is None else found
        assert found.__doc__, name


@every_document
def test_names_of_the_package_in_a_document_exist(document: Path) -> None:
    text = document.read_text()
    names = set(re.findall(r"\bhvs\.(\w+)", text))
    assert not names - set(hvs.__all__)
    policies = set(re.findall(r"\bhvs\.Compression\.(\w+)", text))
    assert not {name for name in policies if not hasattr(hvs.Compression, name)}


@every_document
def test_python_in_a_document_compiles(document: Path) -> None:
    for number, block in enumerate(blocks_of(document)):
        if block.language == "python":
            compile(block.text, f"{document.name}, block {number}", "exec")


def commands_of(document: Path) -> Iterator[list[str]]:
    """Yield the commands of a document's shell blocks, as words."""
    for block in blocks_of(document):
        if block.language == "sh":
            for line in block.text.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words:
                    yield words


def complaint(words: list[str], programs: set[str]) -> str:
    """Say what is wrong with a command that is ours, or nothing."""
    if words[0] == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        wrong = [word for word in words[1:] if "=" not in word and word not in targets]
        return f"no such target: {wrong}" if wrong else ""
    if "python" not in words:
        return ""
    program, *arguments = words[words.index("python") + 1 :]
    if program == "-m":
        return module_complaint(*arguments)
    if program in programs:
        return ""
    if not (ROOT / program).is_file():
        return f"no such file: {program}"
    source = "".join(path.read_text() for path in (ROOT / program).parent.glob("*.py"))
    options = [word.partition("=")[0] for word in arguments if word.startswith("--")]
    unknown = [option for option in options if f'"{option}"' not in source]
    return f"no such option: {unknown}" if unknown else ""


def module_complaint(module: str, command: str = "", *arguments: str) -> str:
    """Say what is wrong with `python -m horovod_sylvie COMMAND ...`, or nothing."""
    if module != "horovod_sylvie":
        return ""
    if command not in COMMANDS:
        return f"no such command: {command}"
    parser = argparse.ArgumentParser(exit_on_error=False)
    name = command.replace("-", "_")
    importlib.import_module(f"horovod_sylvie.commands.{name}").add_arguments(parser)
    try:
        parser.parse_args(arguments)
    except (argparse.ArgumentError, SystemExit) as error:
        return f"{command}: {error}"
    return ""


@every_document
def test_commands_in_a_document_are_accepted(document: Path) -> None:
    programs = {block.title for page in PAGES for block in blocks_of(page) if block.title}
    wrong = {" ".join(words): complaint(words, programs) for words in commands_of(document)}
    assert not {command: text for command, text in wrong.items() if text}


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("make tea", "no such target: ['tea']"),
        ("python examples/none.py", "no such file: examples/none.py"),
        ("python examples/demo.py --ranks 2 --tea", "no such option: ['--tea']"),
        ("python -m horovod_sylvie brew", "no such command: brew"),
        ("python -m horovod_sylvie partition a b", "partition: "),
        ("horovodrun -np 2 python -m horovod_sylvie plan m:f --rate 1gbit", ""),
        ("A=1 python -m pytest --nonsense", ""),
        ("pip install nothing", ""),
    ],
)
def test_rule_for_commands_on_a_known_one_decides_right(command: str, text: str) -> None:
    found = complaint(shlex.split(command), set())
    assert found.startswith(text)
    assert bool(found) == bool(text)
