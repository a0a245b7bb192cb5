"""Compiles the CPU kernels with sanitizers, and the programs that run them.

The kernels need neither Python nor torch, so these programs have none: a sanitizer sees all of
what is ours, and nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from tests.object_files import ObjectFiles

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "tests" / "sanitizers"

Kind = Literal["address", "thread", "libfuzzer"]

_ADDRESS: Final = ("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
_SANITIZE: Final[dict[Kind, tuple[str, ...]]] = {
    "address": _ADDRESS,
    "thread": ("-fsanitize=thread",),
    "libfuzzer": (*_ADDRESS, "-fsanitize=fuzzer"),
}
# What every fuzz target is linked with
_DRIVER: Final[dict[Kind, str]] = {
    "address": "driver.cpp",
    "thread": "driver.cpp",
    "libfuzzer": "mutator.cpp",
}
_FLAGS: Final = (
    "-std=c++17",
    "-O1",
    "-g1",
    "-fno-omit-frame-pointer",
    "-ffp-contract=off",
    "-D_GLIBCXX_ASSERTIONS",
    "-pthread",
    f"-I{ROOT / 'cpp'}",
)
_OWN_FLAGS: Final = ("-Wall", "-Wextra", "-Werror")


def fuzz_targets() -> list[Path]:
    """Return the sources of the fuzz targets, one for each kernel."""
    return sorted(FOLDER.glob("fuzz_*.cpp"))


def build(kind: Kind, folder: Path) -> dict[str, Path]:
    """Build all programs of a kind.

    Args:
        kind: "address": fuzz targets and "faults", with AddressSanitizer and
            UndefinedBehaviorSanitizer. "thread": "threads" and "faults", with ThreadSanitizer.
            "libfuzzer": fuzz targets as clang's libFuzzer runs them.
        folder: For objects, which are kept and used again where their sources are the same.

    Returns:
        The programs, by the names of their sources.
    """
    here = folder / kind
    here.mkdir(parents=True, exist_ok=True)
    files = ObjectFiles(here, lambda source: _flags_of(source, kind), _headers_of)
    mains = [] if kind == "thread" else fuzz_targets()
    if kind != "libfuzzer":
        mains.append(FOLDER / "faults.cpp")
    if kind == "thread":
        mains.append(FOLDER / "threads.cpp")
    kernels = _kernels()
    objects = files.compile([*kernels, FOLDER / _DRIVER[kind], *mains])
    shared, driver = objects[: len(kernels)], objects[len(kernels)]
    programs = {}
    for source, main in zip(mains, objects[len(kernels) + 1 :], strict=True):
        parts = [*shared, main] if source.stem == "threads" else [*shared, driver, main]
        flags = ("-pthread", *_SANITIZE[kind])
        programs[source.stem] = files.link(source.stem, ".elf", parts, flags)
    return programs


def _kernels() -> list[Path]:
    """Return the library's sources but for its bindings, those that take longest first."""
    sources = (ROOT / "cpp").glob("*.cpp")
    kernels = [each for each in sources if "binding" not in each.name and each.name != "module.cpp"]
    return sorted(kernels, key=lambda source: ("_kernels_" not in source.name, source.name))


def _flags_of(source: Path, kind: Kind) -> tuple[str, ...]:
    return (*_FLAGS, *_SANITIZE[kind], *(_OWN_FLAGS if source.parent == FOLDER else ()))


def _headers_of(source: Path) -> list[Path]:
    """Return what a source may include; cpp/ includes nothing from elsewhere."""
    folders = {source.parent, ROOT / "cpp"}
    kinds = {".hpp", ".inl"}
    return sorted(file for each in folders for file in each.iterdir() if file.suffix in kinds)
