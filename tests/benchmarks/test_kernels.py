"""The benchmark of the kernels checks what it times, and says what it measured."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="needs the extra [examples]")

import kernels
import torch
from kernel_case import Case
from kernel_timing import median_ratio, time_in_turn, timer_of
from row_kernel_cases import row_cases
from top_k_kernel_cases import checksum_case, many_case, top_k_cases

from horovod_sylvie.ops.native import load_native

CPU = torch.device("cpu")
SMALL = ["--rows", "40", "--features", "9", "--elements", "3000", "--densities", "0.01"]


def small_cases() -> list[Case]:
    native = load_native()
    return [
        *row_cases(native, CPU, 40, 9, torch.float32),
        *row_cases(native, CPU, 40, 9, torch.bfloat16),
        *top_k_cases(native, CPU, 3000, 0.01),
        many_case(native, CPU, 0.01),
        checksum_case(native, CPU, 4096),
    ]


def test_every_kernel_writes_its_twins_bits() -> None:
    cases = small_cases()
    assert {case.op.split(",")[0] for case in cases} == {
        "pack_rows",
        "unpack_rows",
        "add_packed_rows",
        "select_top_k",
        "select_many",
        "add_selected",
        "clear_selected",
        "restore_selected",
        "checksum_rows",
    }
    for case in cases:
        case.check()


def run_wrongly(case: Case) -> object:
    report = case.kernel()
    if case.written:
        case.written[-1].view(torch.uint8).view(-1)[-1] ^= 1
        return report
    assert isinstance(report, torch.Tensor)
    return report + 1


def test_kernel_that_writes_or_reports_something_else_is_found() -> None:
    for case in small_cases():
        with pytest.raises(RuntimeError, match="expected the twin's bits of"):
            replace(case, kernel=partial(run_wrongly, case)).check()


def test_all_ways_of_a_case_do_something() -> None:
    for case in small_cases():
        case.torch_way()
        assert (case.plain is None) == (case.plain_name == "")
        if case.plain is not None:
            case.plain()


def test_table_and_file_have_a_line_for_each_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, picture = tmp_path / "kernels.json", tmp_path / "kernels.png"
    kernels.main([*SMALL, "--rounds", "2", "--json", str(file), "--plot", str(picture)])
    document = json.loads(file.read_text())
    expected = [(case.op, case.shape) for case in small_cases()[:-1]]
    found = [(case["op"], case["shape"]) for case in document["cases"]]
    assert found == [*expected, ("checksum_rows", "3,000 bytes")]
    numbers = ("kernel_s", "share_of_copy", "over_torch", "over_twin")
    assert all(case[name] > 0 for case in document["cases"] for name in numbers)
    assert document["machine"]["threads"] == torch.get_num_threads() == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum(op in line and shape in line for line in lines for op, shape in expected) >= len(
        expected
    )
    assert picture.stat().st_size > 10_000


def test_device_without_kernels_ends_with_a_message(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="there are none for meta"):
        kernels.main([*SMALL, "--device", "meta", "--json", str(tmp_path / "kernels.json")])


def test_ways_and_their_tensors_take_turns() -> None:
    seen: list[str] = []
    calls = [[lambda n=n: seen.append(n) for n in names] for names in ("ab", "c")]
    times = time_in_turn(calls, timer_of(CPU), 3)
    assert seen == ["a", "c", "b", "c", "a", "c"]
    assert [len(each) for each in times] == [3, 3]


def test_ways_do_not_use_the_same_tensors_one_after_the_other() -> None:
    seen: list[str] = []
    calls = [[lambda n=n: seen.append(n) for n in "abcd"] for _ in range(2)]
    time_in_turn(calls, timer_of(CPU), 4)
    assert seen == ["a", "c", "b", "d", "c", "a", "d", "b"]


def test_ratio_is_of_the_same_round() -> None:
    assert median_ratio([1.0, 8.0, 30.0], [1.0, 4.0, 10.0]) == 2.0


@pytest.mark.parametrize(("num_bytes", "expected"), [(1, 32), (1 << 23, 16), (1 << 28, 1)])
def test_small_cases_have_several_sets(num_bytes: int, expected: int) -> None:
    assert kernels.sets_of(num_bytes) == expected
