"""The host execution of CUDA sources: it runs kernels as a GPU would, and finds what is wrong."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cuda_shim import build

# The first test compiles
pytestmark = pytest.mark.timeout(300)

Run = Callable[..., tuple[list[int], str]]


@pytest.fixture(scope="module")
def run(shim_folder: Path) -> Run:
    library = ctypes.CDLL(str(build.build_faults(shim_folder)))

    def run_case(
        name: str, *, blocks: int = 1, threads: int = 64, stream: int = build.STREAM
    ) -> tuple[list[int], str]:
        out = (ctypes.c_int * (blocks * threads + 1))()
        reason = ctypes.create_string_buffer(1000)
        library.run_case(
            name.encode(), blocks, threads, ctypes.c_size_t(stream), out, reason, len(reason)
        )
        return list(out), reason.value.decode()

    return run_case


SEEDS = ["0", "1", "2"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("threads", [32, 96, 1024])
def test_shuffles_and_barriers_give_prefix_sums(
    run: Run, monkeypatch: pytest.MonkeyPatch, threads: int, seed: str
):
    monkeypatch.setenv("HVS_CUDA_SHIM_SEED", seed)
    out, reason = run("sums", blocks=3, threads=threads)
    assert reason == ""
    expected = [number * (number + 1) // 2 for number in range(1, threads + 1)]
    assert out == [*expected * 3, 0]


@pytest.mark.parametrize("seed", SEEDS)
def test_votes_and_shuffles_of_parts_of_a_warp_are_right_in_every_thread(
    run: Run, monkeypatch: pytest.MonkeyPatch, seed: str
):
    monkeypatch.setenv("HVS_CUDA_SHIM_SEED", seed)
    out, reason = run("votes", blocks=2, threads=96)
    assert reason == ""
    assert out[0] == 2 * 96


def test_order_of_threads_is_that_of_their_numbers_or_random_by_seed(
    run: Run, monkeypatch: pytest.MonkeyPatch
):
    ordered, _ = run("order", blocks=3)
    assert ordered == [3 * 64, *range(3 * 64)]
    shuffled = []
    for seed in ("5", "5", "6"):
        monkeypatch.setenv("HVS_CUDA_SHIM_SEED", seed)
        shuffled.append(run("order", blocks=3)[0])
    assert sorted(shuffled[0][1:]) == ordered[1:]
    assert shuffled[0] == shuffled[1] != shuffled[2]
    assert shuffled[0] != ordered


def test_shared_memory_of_a_new_block_is_garbage(run: Run):
    out, reason = run("garbage", blocks=3, threads=32)
    assert reason == ""
    assert out[:3] == [-1, 0x5A5A5A5A, -1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "ends_early",
            r"thread \(0, 0, 0\) of block \(0, 0, 0\) waits at .*faults\.cu:\d+ for thread "
            r"\(3, 0, 0\) of block \(0, 0, 0\), which has ended",
        ),
        ("meets_elsewhere", r"waits at .*:(\d+) for thread \(32, 0, 0\) .* waits at .*:(?!\1)\d+"),
        ("leaves_itself_out", r"thread \(1, 0, 0\) .*: a thread that is not in its own mask at"),
        ("reads_outside_mask", r"a shuffle that reads a lane outside its mask at .*faults\.cu"),
        ("indexes_outside", r"thread \(31, 0, 0\) .*: an index outside its array at .*faults\.cu"),
        ("misaligns", r"a misaligned or null address at .*faults\.cu:\d+"),
        ("leaves_memory", "an address that is not mapped"),
        ("overflows", r"a signed overflow at .*faults\.cu:\d+"),
    ],
)
def test_kernel_that_is_wrong_is_a_launch_error_that_says_why(run: Run, name: str, text: str):
    _, reason = run(name)
    assert re.search(f"{name}: CUDA refused to run a kernel: .*{text}", reason), reason
    # what was given up leaves nothing behind
    assert run("sums", blocks=1, threads=32)[1] == ""


def test_warp_that_waits_for_threads_the_block_does_not_have_is_a_launch_error(run: Run):
    assert "a thread that the block does not have" in run("waits_for_nobody", threads=40)[1]
    assert run("waits_for_nobody", threads=64)[1] == ""


def test_launch_of_a_wrong_size_or_in_a_wrong_stream_is_refused(run: Run):
    assert "invalid configuration argument" in run("order", threads=1025)[1]
    assert "invalid configuration argument" in run("order", blocks=0)[1]
    assert "invalid resource handle" in run("order", stream=0)[1]
