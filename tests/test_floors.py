"""Hold the house: imports go down a floor, four doors, no module-level state, sizes and names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.floors import FLOORS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "horovod_sylvie"

# Who may import what; everything else of the outside world is free
DOORS = {
    "horovod_sylvie._native": ("ops",),
    "horovod": ("comm",),
    "torch_geometric": ("halo", "partition"),
    "pymetis": ("partition",),
}
MUTABLE_CALLS = {
    "list",
    "dict",
    "set",
    "defaultdict",
    "OrderedDict",
    "deque",
    "Counter",
    "bytearray",
    "WeakKeyDictionary",
    "WeakValueDictionary",
    "WeakSet",
    "local",
}
STATELESS_CALLS = {"getLogger", "TypeVar", "NewType", "ParamSpec", "namedtuple"}
FORBIDDEN_NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "context"}
MAX_LINES = 300

MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    """Return a module's dotted name below the package; a folder's own name for its __init__."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    if parts[-1] == "__init__" and len(parts) > 1:
        parts = parts[:-1]
    return ".".join(parts)


def folder_of(name: str) -> str:
    return name.partition(".")[0]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def exists(dotted: str) -> bool:
    """Tell whether a name below the package is a module (the native one has only a stub)."""
    path = PACKAGE.joinpath(*dotted.split("."))
    return dotted == "_native" or path.with_suffix(".py").exists() or path.is_dir()


def imports_of(path: Path) -> Iterator[str]:
    """Yield the absolute dotted names that a module imports, modules where they are modules."""
    package_parts = ("horovod_sylvie", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package_parts[: len(package_parts) - node.level + 1] if node.level else ()
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{source}.{alias.name}".removeprefix("horovod_sylvie.")
                ours = folder_of(source) == "horovod_sylvie"
                yield f"horovod_sylvie.{inner}" if ours and exists(inner) else source


def place_of(name: str) -> tuple[int, int]:
    """Return a module's floor and its place on it."""
    for floor, rooms in enumerate(FLOORS):
        for place, room in enumerate(rooms):
            if name == room or name.startswith(room + "."):
                return floor, place
    message = f"{name} is on no floor: put it into FLOORS, where its imports allow"
    raise AssertionError(message)


def own_imports(path: Path) -> set[str]:
    names = {name for name in imports_of(path) if name.startswith("horovod_sylvie.")}
    return {name.removeprefix("horovod_sylvie.") for name in names} - {name_of(path)}


def is_arrow_down(name: str, target: str) -> bool:
    (floor, place), (target_floor, target_place) = place_of(name), place_of(target)
    if floor != target_floor:
        return floor > target_floor
    same_folder = folder_of(name) == folder_of(target)
    return same_folder and place >= target_place


def test_imports_of_every_module_go_down_a_floor() -> None:
    folders = {path.parent.relative_to(PACKAGE).as_posix() for path in MODULES} - {"."}
    wrong = [
        f"{name_of(path)} imports {target}"
        for path in MODULES
        for target in sorted(own_imports(path) - folders)
        if name_of(path) not in folders and not is_arrow_down(name_of(path), target)
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_of_all_modules_form_no_circle() -> None:
    left = {name_of(path): own_imports(path) for path in MODULES}
    while True:
        free = {name for name, targets in left.items() if not targets & left.keys()}
        if not free:
            break
        left = {name: targets for name, targets in left.items() if name not in free}
    assert not left, f"in or above a circle: {sorted(left)}"


def test_halves_gradient_and_halo_never_meet() -> None:
    for path in MODULES:
        half = folder_of(name_of(path))
        other = {"gradient": "halo", "halo": "gradient"}.get(half)
        assert other not in {folder_of(name) for name in own_imports(path)}, name_of(path)


def test_doors_are_used_by_their_folders_only() -> None:
    wrong = [
        f"{name_of(path)} imports {target}"
        for path in MODULES
        for target in imports_of(path)
        for door, folders in DOORS.items()
        if (target == door or target.startswith(door + "."))
        and folder_of(name_of(path)) not in folders
    ]
    assert not wrong, "\n".join(wrong)


def test_streams_of_a_gpu_are_the_device_s_and_the_kernels_business() -> None:
    wrong = [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        if folder_of(name_of(path)) not in {"device", "ops"}
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute)
        and node.attr == "cuda"
        and isinstance(node.value, ast.Name)
        and node.value.id == "torch"
    ]
    assert not wrong, f"these use torch.cuda: {wrong}"


def test_face_is_imported_by_no_module() -> None:
    wrong = [name_of(path) for path in MODULES if "horovod_sylvie" in set(imports_of(path))]
    assert not wrong, f"these import horovod_sylvie/__init__.py: {wrong}"


def assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names and values assigned at module level, also below if, try and with."""
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Assign):
            names = [
                each.id
                for target in node.targets
                for each in ast.walk(target)
                if isinstance(each, ast.Name)
            ]
            yield from ((name, node.value) for name in names)
        elif isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
            yield node.target.id, node.value
        elif not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            pending.extend(
                each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt)
            )


def is_mutable(name: str, value: ast.expr) -> bool:
    if name == "__all__":
        return False
    if isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)):
        return True
    if not isinstance(value, ast.Call):
        return False
    function = value.func
    called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    is_constant_name = name.strip("_").isupper()
    return called in MUTABLE_CALLS or not (is_constant_name or called in STATELESS_CALLS)


def test_module_level_holds_no_mutable_state() -> None:
    wrong = [
        f"{name_of(path)}.{name}"
        for path in MODULES
        for name, value in assignments(tree_of(path))
        if is_mutable(name, value)
    ]
    wrong += [
        f"{name_of(path)}: global {', '.join(node.names)}"
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Global)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("CACHE = {}", True),
        ("cache = dict()", True),
        ("NAMES: Final = [1, 2]", True),
        ("_lock = threading.Lock()", True),
        ("try:\n    state = set()\nexcept OSError:\n    pass", True),
        ("WIDTHS = (1, 2, 4, 8)", False),
        ("TABLE = MappingProxyType({1: 2})", False),
        ("logger = logging.getLogger(__name__)", False),
        ("__all__ = ['a']", False),
        ("def f():\n    seen = []", False),
    ],
)
def test_state_rule_on_a_known_module_decides_right(source: str, expected: bool) -> None:
    found = any(is_mutable(name, value) for name, value in assignments(ast.parse(source)))
    assert found is expected


def test_print_is_called_in_commands_only() -> None:
    wrong = [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        if not name_of(path).startswith("commands")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    ]
    assert not wrong, "\n".join(wrong)


def sources() -> Iterator[Path]:
    for folder in ("horovod_sylvie", "cpp", "cuda", "tests", "examples", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".cpp", ".hpp", ".inl", ".cu", ".cuh"}:
                yield path


def test_files_of_every_folder_keep_to_their_length() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in sources()}
    wrong = [f"{path.relative_to(ROOT)}: {n} lines" for path, n in lengths.items() if n > MAX_LINES]
    assert not wrong, "\n".join(wrong)


def test_names_of_all_files_say_what_is_inside() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for path in sources()
        if FORBIDDEN_NAMES
        & {
            part.removesuffix(path.suffix).removeprefix("test_")
            for part in path.relative_to(ROOT).parts
        }
    ]
    assert not wrong, f"named after nothing: {wrong}"
