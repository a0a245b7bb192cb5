"""One rank of one job of `accuracy.py`: one training after the other, in one Horovod job.

Starting a job takes about as long as a short training does. Every training is what
`examples/full_graph.py` does, with a model, an exchange and an optimizer of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from accuracy_recipes import BUDGET, ONE_BIT

import horovod_sylvie as hvs

EXAMPLES: Final = Path(__file__).parents[1] / "examples"


def with_budget(options: list[str], figures: Mapping[str, Any]) -> list[str]:
    """Return options with a budget of twice what a training at one bit has sent."""
    return [*options, "--budget", str(math.ceil(2 * figures["bytes_sent_per_epoch"]))]


def main() -> None:
    """Train all, and let rank 0 write a line on each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, required=True, help="a line of JSON per training")
    parser.add_argument("--data", required=True, help="a partition for this number of ranks")
    parser.add_argument("trainings", help="JSON: the options of each training, by its mode")
    given = parser.parse_args()
    sys.path.insert(0, str(EXAMPLES))
    import full_graph  # its own modules are beside it
    import horovod.torch as hvd

    hvd.init()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // hvd.local_size()))
    comm = hvs.HorovodCommunicator()
    done: dict[str, dict[str, Any]] = {}
    for mode, options in json.loads(given.trainings).items():
        start_s = time.perf_counter()
        words = ["--data", given.data, *options.split()]
        if mode == BUDGET:
            words = with_budget(words, done[ONE_BIT])
        args = full_graph.parse_arguments(__doc__, words)
        done[mode] = full_graph.run(args, comm)
        done[mode]["wall_s"] = round(time.perf_counter() - start_s, 1)
        if comm.rank == 0:
            with given.report.open("a") as lines:
                lines.write(json.dumps({"mode": mode, "figures": done[mode]}) + "\n")


if __name__ == "__main__":
    main()
