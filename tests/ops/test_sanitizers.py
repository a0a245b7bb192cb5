"""The kernels under sanitizers, in short; `make sanitize` runs the same programs for longer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.object_files import compiler
from tests.sanitizers import build

# The first tests compile
pytestmark = pytest.mark.timeout(600)

Programs = dict[str, Path]

# Inputs of each target, about two seconds, and what must happen at least once in so many
TARGETS = {
    "fuzz_add_rows": (
        4000,
        ["bad numbers", "coded rows", "literal rows", "non-finite rows", "corrupt rows"],
    ),
    "fuzz_checksum": (4000, ["nothing", "words"]),
    "fuzz_pack_rows": (2000, ["bad indices", "coded rows", "literal rows", "non-finite rows"]),
    "fuzz_sections": (
        400,
        ["right sections", "wrong counts", "wrong indices", "wrong values", "large arrays"],
    ),
    "fuzz_select_top_k": (300, ["empty shares", "finite sums", "non-finite sums", "large arrays"]),
    "fuzz_unpack_rows": (
        4000,
        ["bad indices", "coded rows", "literal rows", "non-finite rows", "corrupt rows"],
    ),
}
# What sanitizers say on machines that do not let them run
REFUSALS = ["unexpected memory mapping", "LeakSanitizer has encountered a fatal error"]

FAULTS = {
    "address": {
        "overrun": "AddressSanitizer: SEGV",
        "streamed overrun": "AddressSanitizer: SEGV",
        "underrun": "AddressSanitizer: use-after-poison",
        "byte before": "expected no byte written before an array",
        "leak": "LeakSanitizer: detected memory leaks",
        "shift": "runtime error: shift exponent 65 is too large",
        "overflow": "runtime error: signed integer overflow",
        "cast": "runtime error: 4e+30 is outside the range of representable values",
        "index": "Assertion '__n < this->size()' failed",
        "contract": "expected a contract that is kept",
    },
    "thread": {"race": "ThreadSanitizer: data race"},
}


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *arguments], capture_output=True, text=True, check=False, timeout=300
    )


def run_on(program: Path, folder: Path, data: str) -> subprocess.CompletedProcess[str]:
    """Run a fuzz target on one input."""
    (folder / "input").write_text(data)
    return run(program, str(folder / "input"))


def built(kind: build.Kind, factory: pytest.TempPathFactory, config: pytest.Config) -> Programs:
    """Build programs, or skip where they cannot run."""
    if compiler() is None:
        pytest.skip("needs a C++ compiler")
    programs = build.build(kind, Path(config.cache.mkdir("sanitizers")))
    harmless = run_on(programs["faults"], factory.mktemp("harmless"), "nothing")
    for refusal in REFUSALS:
        if refusal in harmless.stderr:
            pytest.skip(f"needs a machine where sanitizers run: {refusal}")
    assert harmless.returncode == 0, harmless.stderr
    return programs


@pytest.fixture(scope="module")
def with_addresses(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Programs:
    return built("address", tmp_path_factory, pytestconfig)


@pytest.fixture(scope="module")
def with_threads(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Programs:
    return built("thread", tmp_path_factory, pytestconfig)


def test_every_fuzz_target_is_run() -> None:
    assert sorted(TARGETS) == [source.stem for source in build.fuzz_targets()]


@pytest.mark.parametrize("target", TARGETS)
def test_kernel_keeps_its_contract_for_any_bytes(with_addresses: Programs, target: str) -> None:
    num_inputs, outcomes = TARGETS[target]
    done = run(with_addresses[target], "--inputs", str(num_inputs))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{num_inputs} inputs; ")
    seen = [each.partition(":")[0] for each in done.stdout.split("; ")[1:]]
    assert set(outcomes) <= set(seen)


def test_kernels_on_many_threads_have_no_races(with_threads: Programs) -> None:
    done = run(with_threads["threads"], "1")
    assert (done.returncode, done.stdout) == (0, "rounds: 1\n"), done.stderr


@pytest.mark.parametrize(
    ("kind", "fault"), [(kind, fault) for kind, faults in FAULTS.items() for fault in faults]
)
def test_fault_is_found(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, fault: str
) -> None:
    programs = request.getfixturevalue(
        {"address": "with_addresses", "thread": "with_threads"}[kind]
    )
    done = run_on(programs["faults"], tmp_path, fault)
    assert done.returncode != 0
    assert FAULTS[kind][fault] in done.stderr


def test_input_that_ends_a_program_is_made_again_by_the_command_in_the_last_line(
    with_addresses: Programs,
) -> None:
    found = set()
    for seed in range(6):
        failed = run(with_addresses["faults"], "--inputs", "1000", "--seed", str(seed))
        label, program, *arguments = failed.stderr.splitlines()[-1].split(" ")
        assert (label, arguments[:3]) == ("repeat:", ["--seed", str(seed), "--first"])
        repeated = run(Path(program), *arguments)
        assert repeated.stderr.splitlines()[-1] == failed.stderr.splitlines()[-1]
        (text,) = {text for text in FAULTS["address"].values() if text in failed.stderr}
        assert text in repeated.stderr
        found.add(text)
    assert len(found) > 1
