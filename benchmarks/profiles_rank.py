"""One rank of `profiles.py`: trains, and rank 0 is watched."""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import time
from pathlib import Path
from typing import Any, Final

import torch
from epoch_rank import Size, make_trainers, measure_alone
from step_rank import COMPUTES, Contender, Pace, await_all, make_contenders, warm_up

import horovod_sylvie as hvs

_NATIVE: Final = "~"
_PACKAGES: Final = ("horovod_sylvie", "torch", "torch_geometric", "horovod", "benchmarks")


def name_of(file: str, function: str) -> str:
    """Return a function's name with the file that it stands in, from its package on.

    Args:
        file: As Python knows it; `_NATIVE` for a function of C++.
        function: Its name.
    """
    if file == _NATIVE:
        words = function.strip("<>").replace("built-in method ", "").replace("method ", "")
        return words.partition(" of ")[0].strip("'")
    parts = Path(file).parts
    begins = [index for index, part in enumerate(parts) if part in _PACKAGES]
    begin = begins[-1] if begins else len(parts) - 1
    return f"{'/'.join(parts[begin:])}:{function}"


def functions_of(watcher: cProfile.Profile) -> list[dict[str, Any]]:
    """Return what each function took, without those that it called.

    A function of C++ is listed for each function that called it.
    """
    functions = []
    entries = pstats.Stats(watcher).stats  # type: ignore[attr-defined]
    for (file, _, function), (_, calls, own_s, _, callers) in entries.items():
        name = name_of(file, function)
        if file != _NATIVE or not callers:
            functions.append({"name": name, "calls": calls, "own_s": own_s})
            continue
        for (caller_file, _, caller), (_, calls_from, own_s_from, _) in callers.items():
            place = name_of(caller_file, caller)
            functions.append(
                {"name": f"{name} in {place}", "calls": calls_from, "own_s": own_s_from}
            )
    return functions


def make_contender(args: argparse.Namespace, comm: hvs.Communicator) -> Contender:
    """Return what trains, past its warm-up. Collective."""
    if args.what == "step":
        contenders, _ = make_contenders(args.model, args.compute, [args.way], comm)
        warm_up(comm, contenders[0], Pace())
        return contenders[0]
    part = hvs.load_partition(args.parts, comm.rank, comm.size)
    size = Size(args.model)
    times = measure_alone(size, part, comm) if args.compute == "emulated" else None
    trainer = make_trainers(size, [args.way], part, comm, times)[0]
    trainer.warm_up(comm)
    return trainer.contender


def mean_s(contender: Contender, num_steps: int, comm: hvs.Communicator) -> float:
    """Train, and return the mean seconds of a step. Collective."""
    await_all(comm)
    begun_s = time.perf_counter()
    contender.run(num_steps)
    return (time.perf_counter() - begun_s) / num_steps


def main() -> None:
    """Be a rank; rank 0 writes the report."""
    import horovod.torch as hvd

    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--what", choices=("step", "epoch"), required=True)
    add("--model", required=True)
    add("--way", required=True)
    add("--compute", choices=COMPUTES, required=True)
    add("--steps", type=int, required=True)
    add("--parts", type=Path, help="partition directory, of an epoch")
    add("--report", type=Path, required=True, help="where rank 0 writes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    comm = hvs.HorovodCommunicator()
    contender = make_contender(args, comm)
    unwatched_s = mean_s(contender, args.steps, comm)
    watcher = cProfile.Profile()
    if comm.rank == 0:
        watcher.enable()
    watched_s = mean_s(contender, args.steps, comm)
    watcher.disable()
    if comm.rank == 0:
        report = {
            "steps": args.steps,
            "unwatched_s": unwatched_s,
            "watched_s": watched_s,
            "functions": functions_of(watcher),
        }
        args.report.write_text(json.dumps(report))
    hvd.shutdown()


if __name__ == "__main__":
    main()
