"""Compiles C++ for tests: what was compiled is used again where its sources are the same."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path


def compiler() -> str | None:
    """Return the C++ compiler, or None where there is none."""
    return shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")


@dataclass(frozen=True)
class ObjectFiles:
    """A folder of objects, and of what is linked from them.

    Attributes:
        folder: Where they are. No two sources have the same file name.
        flags_of: Flags to compile a source with.
        headers_of: The files that a source may include.
    """

    folder: Path
    flags_of: Callable[[Path], Sequence[str]]
    headers_of: Callable[[Path], Sequence[Path]]

    def compile(self, sources: Iterable[Path]) -> list[Path]:
        """Compile what has changed, one process for each core.

        Args:
            sources: In the order in which to begin: the longest first.

        Returns:
            The objects, in the order of the sources.
        """
        program = _program()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(lambda source: self._compile(program, source), sources))

    def link(self, name: str, suffix: str, objects: Sequence[Path], flags: Sequence[str]) -> Path:
        """Link objects.

        Args:
            name: What the file's name begins with.
            suffix: What it ends with.
            objects: From `compile`.
            flags: Of the linker.
        """
        key = _digest(each.encode() for each in (*flags, *(path.name for path in objects)))
        target = self.folder / f"{name}-{key}{suffix}"
        if not target.exists():
            _forget(self.folder.glob(f"{name}-*{suffix}"))
            _run([_program(), *map(str, objects), *flags], target)
        return target

    def _compile(self, program: str, source: Path) -> Path:
        flags = self.flags_of(source)
        version = subprocess.run([program, "--version"], capture_output=True, check=True).stdout
        parts = (file.read_bytes() for file in [source, *self.headers_of(source)])
        key = _digest([version, repr(flags).encode(), *parts])
        target = self.folder / f"{source.name}-{key}.o"
        if not target.exists():
            _forget(self.folder.glob(f"{source.name}-*.o"))
            _run([program, *flags, "-c", str(source)], target)
        return target


def _program() -> str:
    program = compiler()
    assert program is not None, "callers skip without a compiler"
    return program


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _forget(outdated: Iterable[Path]) -> None:
    for file in outdated:
        file.unlink(missing_ok=True)


def _run(command: list[str], target: Path) -> None:
    """Run a compiler; its output appears whole or not at all."""
    partial = target.with_suffix(f".{os.getpid()}")
    done = subprocess.run(
        [*command, "-o", str(partial)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    partial.replace(target)
