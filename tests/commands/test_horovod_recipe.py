"""The recipe: what the toolchain file says, what the build sees, what a wheel's key depends on."""

from __future__ import annotations

import pytest

from horovod_sylvie.commands.horovod_prerequisites import Compiler
from horovod_sylvie.commands.horovod_recipe import (
    build_environment,
    num_build_jobs,
    toolchain_text,
    wheel_facts,
    wheel_key,
)

GCC_12 = Compiler("/usr/bin/g++", "g++", 12)
GCC_13 = Compiler("/usr/bin/g++", "g++", 13)
CLANG_16 = Compiler("/usr/bin/clang++", "clang++", 16)


def key_of(environ: dict[str, str], torch: str = "2.13.0+cpu", compiler: Compiler = GCC_12) -> str:
    env = build_environment(environ, compiler)
    toolchain = toolchain_text(torch, compiler, environ)
    return wheel_key(wheel_facts(torch, compiler, env, toolchain))


@pytest.mark.parametrize(
    ("torch", "standard"),
    [("2.1.0", "17"), ("2.8.0+cpu", "17"), ("2.9.0", "20"), ("2.13.0+cu130", "20"), ("3.0", "20")],
)
def test_toolchain_for_torch_takes_its_standard(torch: str, standard: str) -> None:
    text = toolchain_text(torch, GCC_12, {})
    assert f'CMAKE_CXX14_STANDARD_COMPILE_OPTION "-std=c++{standard}"' in text
    assert "@STANDARD@" not in text
    assert "CMAKE_POLICY_VERSION_MINIMUM 3.5" in text


def test_toolchain_for_gcc_13_includes_the_headers_it_dropped() -> None:
    assert "-include stdexcept" in toolchain_text("2.13.0", GCC_13, {})
    assert "-include" not in toolchain_text("2.13.0", GCC_12, {})
    assert "-include" not in toolchain_text("2.13.0", CLANG_16, {})


def test_toolchain_of_the_user_is_included_first() -> None:
    text = toolchain_text("2.13.0", GCC_12, {"CMAKE_TOOLCHAIN_FILE": "/opt/cross.cmake"})
    assert text.startswith('include("/opt/cross.cmake")\n')


def test_toolchain_for_a_strange_torch_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"'torch_version', got 'nightly'\. Install a release"):
        toolchain_text("nightly", GCC_12, {})


def test_environment_without_wishes_builds_gloo_and_nothing_else() -> None:
    env = build_environment({"PATH": "/bin"}, GCC_12)
    assert {name for name in env if name.startswith("HOROVOD_")} == {
        "HOROVOD_WITH_PYTORCH",
        "HOROVOD_WITH_GLOO",
        "HOROVOD_WITHOUT_MPI",
        "HOROVOD_WITHOUT_TENSORFLOW",
        "HOROVOD_WITHOUT_MXNET",
    }
    assert env["PATH"].endswith("/bin")
    assert env["CXX"] == "/usr/bin/g++"


def test_environment_of_the_user_passes_through() -> None:
    wishes = {
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_GPU_OPERATIONS": "NCCL",
        "HOROVOD_CUDA_HOME": "/opt/cuda",
        "MAKEFLAGS": "-j3",
    }
    env = build_environment(wishes, GCC_12)
    assert wishes.items() <= env.items()
    assert "HOROVOD_WITHOUT_MPI" not in env


def test_environment_without_gloo_is_the_users_to_choose() -> None:
    env = build_environment({"HOROVOD_WITHOUT_GLOO": "1", "HOROVOD_WITH_MPI": "1"}, GCC_12)
    assert "HOROVOD_WITH_GLOO" not in env


@pytest.mark.parametrize("name", ["HOROVOD_WITHOUT_PYTORCH", "HOROVOD_SKIP_COMPILE"])
def test_environment_that_excludes_torch_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"got {name}=1\. Run: unset {name}"):
        build_environment({name: "1"}, GCC_12)


def test_key_of_the_same_facts_is_the_same() -> None:
    assert key_of({"PATH": "/bin"}) == key_of({"PATH": "/usr/bin", "MAKEFLAGS": "-j1"})


@pytest.mark.parametrize("name", ["HOROVOD_LOG_LEVEL", "HOROVOD_CYCLE_TIME", "HOROVOD_RANK"])
def test_key_ignores_what_is_read_when_a_job_runs(name: str) -> None:
    assert key_of({name: "1"}) == key_of({})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOROVOD_WITH_MPI", "1"),
        ("HOROVOD_GPU_OPERATIONS", "NCCL"),
        ("HOROVOD_CUDA_HOME", "/opt/cuda"),
        ("HOROVOD_BUILD_ARCH_FLAGS", "-march=x86-64"),
        ("CXXFLAGS", "-O1"),
        ("CMAKE_TOOLCHAIN_FILE", "/opt/cross.cmake"),
    ],
)
def test_key_depends_on_what_changes_the_build(name: str, value: str) -> None:
    assert key_of({name: value}) != key_of({})


def test_key_depends_on_torch_and_compiler() -> None:
    assert len({key_of({}), key_of({}, "2.13.0+cu130"), key_of({}, compiler=GCC_13)}) == 3


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        ("-j3", True),
        ("-k -j 1", True),
        ("", False),
        ("w", False),
        (" --no-print-directory", False),
        (" -j2 --jobserver-auth=3,4", False),
    ],
)
def test_environment_below_a_make_takes_its_own_number_of_jobs(flags: str, kept: bool) -> None:
    env = build_environment({"MAKEFLAGS": flags}, GCC_12)
    assert env["MAKEFLAGS"] == (flags if kept else f"-j{num_build_jobs()}")


def test_build_jobs_on_this_machine_are_at_least_one() -> None:
    assert num_build_jobs() >= 1
