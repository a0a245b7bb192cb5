"""`python -m horovod_sylvie check`: what is there, and the command that brings what is not.

Collects findings and prints them, like `horovodrun --check-build`. Changes nothing. Works with
anything missing, torch included, and so imports each thing inside a try or in a child process.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import platform
import sys
from dataclasses import asdict, dataclass
from typing import Any, Final

from ..comm.horovod_build import INSTALL_COMMAND, HorovodBuild, describe_horovod
from ..ops.native import load_native, rebuild_command

GNN_COMMAND: Final = "pip install 'horovod_sylvie[gnn]'"


@dataclass(frozen=True)
class Finding:
    """One thing that is there or not.

    Attributes:
        group: The heading that it is listed under.
        name: What it is.
        present: Whether it is there and works.
        required: Whether full-graph training needs it.
        detail: Its version, or what is wrong with it.
        command: What brings it; empty if it is there or no command can.
    """

    group: str
    name: str
    present: bool
    required: bool
    detail: str
    command: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the findings.

    Returns:
        0 if all that full-graph training needs is there, else 1.
    """
    findings = collect_findings()
    ready = all(each.present for each in findings if each.required)
    if arguments.json:
        print(
            json.dumps({"ready": ready, "findings": [asdict(each) for each in findings]}, indent=2)
        )
    else:
        _print_table(findings, ready)
    return 0 if ready else 1


def collect_findings() -> list[Finding]:
    """Look at this interpreter's packages, the native library and Horovod.

    Note:
        Imports torch, torch_geometric and pymetis, and Horovod in a child process: takes seconds.
    """
    torch, torch_finding = _package("torch", f"{sys.executable} -m pip install torch")
    horovod = describe_horovod(torch)
    own_version = sys.modules[__name__.partition(".")[0]].__version__  # works uninstalled, too
    return [
        Finding("Versions", "horovod_sylvie", True, True, own_version),
        Finding("Versions", "python", True, True, platform.python_version()),
        torch_finding,
        _package("torch_geometric", GNN_COMMAND)[1],
        _package("pymetis", GNN_COMMAND)[1],
        _horovod_version(horovod),
        *_native_library(),
        *_horovod_features(horovod),
    ]


def _package(name: str, command: str) -> tuple[str | None, Finding]:
    """Import a required package; return its version, or None, and the finding."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name == name
        detail = "not installed" if missing else f"needs {error.name}, which is not installed"
    except Exception as error:  # whatever a broken package raises is what is to be reported
        detail = f"cannot be imported: {error}"
    else:
        version = getattr(module, "__version__", None) or importlib.metadata.version(name)
        return str(version), Finding("Versions", name, True, True, str(version))
    return None, Finding("Versions", name, False, True, detail, command)


def _horovod_version(build: HorovodBuild) -> Finding:
    if build.version is None:
        return Finding("Versions", "horovod", False, True, "not installed", INSTALL_COMMAND)
    built_for = build.torch_version or "no torch"
    return Finding("Versions", "horovod", True, True, f"{build.version}, built for {built_for}")


def _native_library() -> list[Finding]:
    group = "Native library"
    try:
        native = load_native()
        kernels = Finding(group, "CPU kernels", True, False, native.instruction_set())
        return [kernels, _cuda_half(native.cuda_runtime())]
    except ImportError as error:
        detail = f"cannot be loaded ({error}); slower plain-PyTorch code runs instead"
        return [
            Finding(group, "CPU kernels", False, False, detail, rebuild_command()),
            Finding(group, "CUDA half", False, False, "", rebuild_command()),
        ]


def _cuda_half(runtime: dict[str, Any] | None) -> Finding:
    group, name = "Native library", "CUDA half"
    if runtime is None:
        command = f"CMAKE_ARGS=-DHVS_WITH_CUDA=ON {rebuild_command()}"
        return Finding(group, name, False, False, "built without CUDA", command)
    devices = [f"{each['name']} ({each['compute_capability']})" for each in runtime["devices"]]
    seen = ", ".join(devices) or f"no device here: {runtime['problem']}"
    return Finding(group, name, True, False, f"built with CUDA {runtime['toolkit']}; {seen}")


def _horovod_features(build: HorovodBuild) -> list[Finding]:
    """List what was compiled into Horovod; each feature that is not, with its own command."""
    usable = build.problem is None
    repair = INSTALL_COMMAND if build.version is None else f"{INSTALL_COMMAND} --force"
    extension = Finding(
        "Horovod", "torch extension", usable, True, build.problem or "", "" if usable else repair
    )
    rows = [
        ("Horovod: controllers", "Gloo", "gloo", "HOROVOD_WITH_GLOO=1"),
        ("Horovod: controllers", "MPI", "mpi", "HOROVOD_WITH_MPI=1"),
        ("Horovod: tensor operations", "NCCL", "nccl", "HOROVOD_GPU_OPERATIONS=NCCL"),
        ("Horovod: tensor operations", "Gloo", "gloo", "HOROVOD_WITH_GLOO=1"),
        ("Horovod: tensor operations", "MPI", "mpi", "HOROVOD_WITH_MPI=1"),
    ]
    findings = [extension]
    for group, name, feature, variable in rows:
        present = feature in build.features
        # One of them is needed, and which one is the user's choice; gloo comes by itself
        required = feature == "gloo" and "mpi" not in build.features
        command = "" if present else repair if required else f"{variable} {INSTALL_COMMAND}"
        findings.append(Finding(group, name, present, required, "", command))
    return findings


def _print_table(findings: list[Finding], ready: bool) -> None:
    group = ""
    for each in findings:
        if each.group != group:
            group = each.group
            print(f"\n{group}:")
        mark = "X" if each.present else " "
        print(f"    [{mark}] {each.name:16} {each.detail}".rstrip())
    for heading, required in (("Missing, and needed", True), ("Not there, and optional", False)):
        names: dict[str, list[str]] = {}
        for each in findings:
            if each.command and each.required is required:
                names.setdefault(each.command, []).append(each.name)
        if names:
            print(f"\n{heading}:")
        for command, for_what in names.items():
            print(f"    {', '.join(dict.fromkeys(for_what))}\n        {command}")
    print("\nReady for full-graph training." if ready else "\nNot ready for full-graph training.")
