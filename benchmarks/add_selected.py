"""Time summing what all ranks selected against filling the dense gradient with zeros.

    python benchmarks/add_selected.py [--elements 1048576 16777216] [--ranks 4] [--json FILE]

The result is compared with torch's first. Then all candidates run in turn, round after round, so
that a slow moment of the machine hits all of them; on one array, and on so many that none is in a
cache when its turn comes. Printed is the median over the rounds of the
ratio to the baseline of the same round:

    sum / fill       = t(add_selected(payloads)) / t(out.zero_())
    index_add / fill = t(zero_() and an index_add_ for each rank, decoded before) / t(out.zero_())

in float32, on the same number of threads. The last line is the speed of the payloads' checksum.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from horovod_sylvie.ops.checksum import checksum
from horovod_sylvie.ops.native import load_native
from horovod_sylvie.ops.top_k import add_selected, section_bytes, select_top_k
from horovod_sylvie.ops.top_k_reference import read_section

COLD_ELEMENTS = 1 << 25  # of all arrays: 128 MiB


@dataclass(frozen=True)
class Measurement:
    """One line of the table: ratios to the fill, and its median in milliseconds."""

    num_elements: int
    density: float
    num_ranks: int
    num_arrays: int
    fill_ms: float
    sum_over_fill: float
    index_add_over_fill: float


def seconds(function: Callable[[], object]) -> float:
    """Run once and return how long it took; on one thread, without the time of other programs."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    function()
    return clock() - start


def select(num_elements: int, k: int) -> Tensor:
    """Select from normal numbers. [section_bytes], uint8."""
    residual = torch.randn(num_elements)
    section = torch.empty(section_bytes(num_elements, k, torch.float32), dtype=torch.uint8)
    select_top_k(
        None, residual, k=k, value_dtype=torch.float32, accumulated=residual, section=section
    )
    return section


def measure(
    num_elements: int, density: float, num_ranks: int, num_arrays: int, rounds: int
) -> Measurement:
    """Validate one size and density, and time it on so many arrays, one after the other."""
    k = max(1, round(num_elements * density))
    payloads = torch.stack([select(num_elements, k) for _ in range(num_ranks)])
    outs = [torch.zeros(num_elements) for _ in range(num_arrays)]
    shape = {"num_elements": num_elements, "k": k, "value_dtype": torch.float32}
    pairs = [read_section(section, **shape) for section in payloads]
    scale = 1.0 / num_ranks

    def fill() -> None:
        for out in outs:
            out.zero_()

    def index_add() -> None:
        for out in outs:
            out.zero_()
            for index, values in pairs:
                out.index_add_(0, index, values, alpha=scale)

    def sum_selected() -> None:
        for out in outs:
            add_selected(payloads, offset=0, scale=scale, out=out, **shape)

    index_add()
    expected = outs[0].clone()
    sum_selected()
    torch.testing.assert_close(outs[0], expected)
    fills, sums, index_adds = [], [], []
    for _ in range(rounds):
        fills.append(seconds(fill))
        sums.append(seconds(sum_selected) / fills[-1])
        index_adds.append(seconds(index_add) / fills[-1])
    return Measurement(
        num_elements,
        density,
        num_ranks,
        num_arrays,
        1e3 * statistics.median(fills) / num_arrays,
        statistics.median(sums),
        statistics.median(index_adds),
    )


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, nargs="+", default=[1 << 20, 1 << 24])
    parser.add_argument("--densities", type=float, nargs="+", default=[0.01, 0.001])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1, help="of torch and of the kernels")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each line, roughly")
    parser.add_argument("--json", type=Path, help="also write the measurements here")
    return parser.parse_args()


def main() -> None:
    """Measure every size and density and print the table."""
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    print(
        f"fp32, {arguments.ranks} ranks, {arguments.threads} thread(s), "
        f"{load_native().instruction_set()}, torch {torch.__version__}; zero_ in milliseconds, "
        "and ratios to it"
    )
    print(" elements  density  arrays     fill      sum  index_add")
    measurements = []
    for num_elements in arguments.elements:
        rounds = max(5, min(201, int(arguments.seconds * 5e8 / num_elements)))
        for density in arguments.densities:
            for num_arrays in (1, max(2, COLD_ELEMENTS // num_elements)):
                each = measure(
                    num_elements, density, arguments.ranks, num_arrays, max(5, rounds // num_arrays)
                )
                measurements.append(asdict(each))
                print(
                    f"{num_elements:9}  {100 * density:4.1f} %  {num_arrays:6} {each.fill_ms:8.3f} "
                    f"{each.sum_over_fill:8.2f} {each.index_add_over_fill:10.2f}",
                    flush=True,
                )
    data = torch.randint(256, (1 << 24,), dtype=torch.uint8)
    best = min(seconds(lambda: checksum(data)) for _ in range(11))
    print(f"checksum: {data.nbytes / 1e9 / best:.1f} GB/s")
    if arguments.json:
        arguments.json.write_text(json.dumps(measurements, indent=2) + "\n")


if __name__ == "__main__":
    main()
