"""How Horovod 0.28.1 is built for today's torch: toolchain file, environment, wheel key.

Plain functions from facts to text, without side effects; `horovod_wheel` runs them. Horovod's
sources are not touched: everything goes through variables that its build reads.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
import sysconfig
from collections.abc import Mapping
from typing import Final

from .horovod_prerequisites import Compiler, search_path

HOROVOD_VERSION: Final = "0.28.1"

# Variables of Horovod's build, by prefix; other HOROVOD_* are read when a job runs
_BUILD_PREFIXES: Final = (
    "HOROVOD_ALLOW_MIXED_GPU_IMPL",
    "HOROVOD_BUILD_",
    "HOROVOD_CPU_OPERATIONS",
    "HOROVOD_CUDA_",
    "HOROVOD_DEBUG",
    "HOROVOD_GPU",
    "HOROVOD_LOCAL_VERSION",
    "HOROVOD_NCCL_",
    "HOROVOD_NVTX_",
    "HOROVOD_ROCM_",
    "HOROVOD_WITHOUT_",
    "HOROVOD_WITH_",
)
_BUILD_VARIABLES: Final = ("CC", "CFLAGS", "CPPFLAGS", "CUDA_HOME", "CXXFLAGS", "LDFLAGS")

# CMake reads this file at the start of every project() call, and again as the "project include"
# of the project named horovod, after the compiler's settings are known and may be replaced.
_TOOLCHAIN: Final = r"""
# CMake 4 refuses gloo and flatbuffers, which ask for the behaviour of CMake 2.8.12
set(CMAKE_POLICY_VERSION_MINIMUM 3.5)
# Read this file a second time, right after project(horovod)
set(CMAKE_PROJECT_horovod_INCLUDE "${CMAKE_CURRENT_LIST_FILE}")
if(PROJECT_NAME STREQUAL "horovod")
  # Horovod asks for C++14 (gloo for C++11) and CMake puts that behind any CXXFLAGS, but torch's
  # headers need more: let the flag that CMake takes for those standards name the right one
  set(CMAKE_CXX11_STANDARD_COMPILE_OPTION "-std=c++@STANDARD@")
  set(CMAKE_CXX14_STANDARD_COMPILE_OPTION "-std=c++@STANDARD@")
  # Without -g: debug information would be nine tenths of the wheel
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O3 -g0 -DNDEBUG")
endif()
"""
# gcc 13 no longer includes these headers through others, and Horovod's sources rely on that
_INCLUDES: Final = r"""
set(CMAKE_CXX_FLAGS_INIT "-include string -include stdexcept -include cstdint")
"""


def toolchain_text(torch_version: str, compiler: Compiler, environ: Mapping[str, str]) -> str:
    """Write the CMake toolchain file. A toolchain file of the user's is included first."""
    numbers = re.match(r"(\d+)\.(\d+)", torch_version)
    if numbers is None:
        msg = (
            f"toolchain_text: expected a version such as 2.13.0 for 'torch_version', got "
            f"{torch_version!r}. Install a release of torch."
        )
        raise ValueError(msg)
    # torch 2.9 moved its headers to C++20; before that C++17 is what they are tested with
    standard = "20" if (int(numbers[1]), int(numbers[2])) >= (2, 9) else "17"
    text = _TOOLCHAIN.replace("@STANDARD@", standard)
    if compiler.major >= 13 and "clang" not in compiler.name:
        text = _INCLUDES + text
    users = environ.get("CMAKE_TOOLCHAIN_FILE")
    return f'include("{users}")\n{text}' if users else text


def build_environment(environ: Mapping[str, str], compiler: Compiler) -> dict[str, str]:
    """Complete the user's environment for the build of Horovod.

    What the user set stays. Where neither HOROVOD_WITH_X nor HOROVOD_WITHOUT_X is set, gloo is
    required and MPI, TensorFlow and MXNet are left out: Horovod would otherwise build in what
    happens to lie on the machine, and then need it wherever the wheel goes.

    Raises:
        ValueError: If the user's variables exclude what this package needs.
    """
    for name, value in (("HOROVOD_WITHOUT_PYTORCH", "1"), ("HOROVOD_SKIP_COMPILE", "1")):
        if environ.get(name) == value:
            msg = (
                f"install-horovod: expected Horovod with its torch extension, got {name}={value}. "
                f"Run: unset {name}"
            )
            raise ValueError(msg)
    env = dict(environ)
    env["HOROVOD_WITH_PYTORCH"] = "1"  # turns the silent skip of the torch extension into an error
    for feature, word in (
        ("GLOO", "WITH"),
        ("MPI", "WITHOUT"),
        ("TENSORFLOW", "WITHOUT"),
        ("MXNET", "WITHOUT"),
    ):
        if not any(environ.get(f"HOROVOD_{each}_{feature}") == "1" for each in ("WITH", "WITHOUT")):
            env[f"HOROVOD_{word}_{feature}"] = "1"
    env["CXX"] = compiler.path
    env["PATH"] = search_path(environ)
    # Below a `make`, this is that make's own: without jobs (Horovod would take 8), or with a
    # jobserver that pip's processes cannot reach
    flags = environ.get("MAKEFLAGS", "")
    if "jobserver" in flags or re.search(r"(^|\s)-j\s*\d", flags) is None:
        env["MAKEFLAGS"] = f"-j{num_build_jobs()}"
    return env


def num_build_jobs() -> int:
    """Return how many compilers to run: one per core, with 2 GiB of memory for each."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory_bytes // 2**31))


def wheel_facts(
    torch_version: str, compiler: Compiler, env: Mapping[str, str], toolchain: str
) -> dict[str, str]:
    """Collect all that decides what the wheel is; two builds with the same facts are the same.

    Args:
        torch_version: The torch that is compiled against.
        compiler: The C++ compiler.
        env: The environment of the build, from `build_environment`.
        toolchain: The toolchain file, from `toolchain_text`.
    """
    facts = {
        "horovod": HOROVOD_VERSION,
        "python": sys.implementation.cache_tag,
        "platform": sysconfig.get_platform(),
        "libc": "-".join(platform.libc_ver()),
        "torch": torch_version,
        "compiler": compiler.identity,
        "toolchain": toolchain,
    }
    for name in sorted(env):
        if name.startswith(_BUILD_PREFIXES) or name in _BUILD_VARIABLES:
            facts[name] = env[name]
    return facts


def wheel_key(facts: Mapping[str, str]) -> str:
    """Hash the facts into the name of a folder."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
